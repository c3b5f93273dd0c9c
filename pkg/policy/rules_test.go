package policy_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ipam-guard/ipam-guard/pkg/policy"
)

func TestParseRules(t *testing.T) {
	rules, err := policy.ParseRules([]byte(`[
		{"name": "a", "match": {"commands": ["DEL"], "kinds": ["timeout"], "codes": [11, 100], "message": "(?i)later", "stderr": "x+"}, "retry": true, "then": "defer"},
		{"name": "b", "match": {}}]`))
	if err != nil || len(rules) != 2 {
		t.Fatalf("ParseRules: %v, %v", rules, err)
	}
	a := rules[0]
	if a.Name != "a" || !a.Retry || a.Then != policy.Defer || a.Match.Kinds[0] != policy.Timeout || !a.Match.Message.MatchString("LATER") {
		t.Errorf("first rule: %+v", a)
	}
}

func TestParseRulesSaysWhatIsWrong(t *testing.T) {
	tests := []struct{ text, key, value, want string }{
		{`{}`, "", "{}", "array"},
		{`null`, "", "null", "array"},
		{`[1]`, "[0]", "1", "object"},
		{`[{"match": {}}]`, "[0].name", "", "name"},
		{`[{"name": "a"}]`, "[0].match", "", "{} matches every failure"},
		{`[{"name": "a", "match": {}, "then": "ignore"}]`, "[0].then", `"ignore"`, "fail, defer or succeed"},
		{`[{"name": "a", "match": {}}, {"name": "b", "match": {"kinds": ["error", "timeouts"]}}]`, "[1].match.kinds[1]", `"timeouts"`, "timeout"},
		{`[{"name": "a", "match": {"commands": ["del"]}}]`, "[0].match.commands[0]", `"del"`, "DEL"},
		{`[{"name": "a", "match": {"message": "("}}]`, "[0].match.message", `"("`, "RE2"},
		{`[{"name": "a", "match": {"stderr": "(?<!x)"}}]`, "[0].match.stderr", "(?<!x)", "RE2"},
		{`[{"name": "a", "match": {"mesage": "x"}}]`, "[0].match", "mesage", "message"},
		{`[{"name": "a", "match": {}, "them": "fail"}]`, "[0]", "them", "then"},
		{`[{"name": "a", "match": {"codes": [-1]}}]`, "[0].match", "-1", "codes"},
		{`[{"name": "a", "match": {"commands": ["ADD", "DEL"]}, "then": "succeed"}]`, "[0].then", `"succeed"`, "a failed ADD"},
	}
	for _, tt := range tests {
		_, err := policy.ParseRules([]byte(tt.text))
		var e *policy.RuleError
		if !errors.As(err, &e) {
			t.Errorf("%s: error %v, want a RuleError", tt.text, err)
			continue
		}
		if e.Key != tt.key || !strings.Contains(e.Value, tt.value) || !strings.Contains(e.Want, tt.want) {
			t.Errorf("%s:\n got key %q, value %q, want %q", tt.text, e.Key, e.Value, e.Want)
		}
	}
}

// FuzzRules: whatever an administrator writes, it is rules or a RuleError, and
// what was accepted decides without a panic.
func FuzzRules(f *testing.F) {
	f.Add(`[{"name": "a", "match": {"kinds": ["timeout"], "message": "a|b"}, "retry": true, "then": "defer"}]`, "msg", "DEL")
	f.Add(`[{"name": "a", "match": {}}]`, "", "ADD")
	f.Add(`[]`, "x", "GC")
	f.Fuzz(func(t *testing.T, text, message, verb string) {
		rules, err := policy.ParseRules([]byte(text))
		var e *policy.RuleError
		if err != nil && !errors.As(err, &e) {
			t.Fatalf("not a RuleError: %v", err)
		}
		p := policy.Policy{Rules: rules, Attempts: 2}
		v := p.Decide(policy.Outcome{Verb: verb, Kind: policy.Error, Message: message, Attempt: 1})
		if verb != "DEL" && v.Then != policy.Fail {
			t.Fatalf("a failed %s would be answered with %s", verb, v.Then)
		}
	})
}
