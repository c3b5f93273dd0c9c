package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// RuleError says what is wrong with a list of rules.
type RuleError struct {
	Key   string // below policy.rules, like "[2].match.kinds[0]"; "" for the list itself
	Value string // as it was written
	Want  string // what would be right
}

func (e *RuleError) Error() string {
	return fmt.Sprintf("policy.rules%s: %s: want %s", e.Key, e.Value, e.Want)
}

// rule and match are the JSON form, see ParseRules.
type rule struct {
	Name  string          `json:"name"`
	Match json.RawMessage `json:"match"`
	Retry bool            `json:"retry"`
	Then  string          `json:"then"`
}

type match struct {
	Commands  []string `json:"commands"`
	Delegates []string `json:"delegates"`
	Kinds     []string `json:"kinds"`
	Codes     []uint   `json:"codes"`
	Message   string   `json:"message"`
	Stderr    string   `json:"stderr"`
}

var (
	verbs = []string{"ADD", "DEL"} // of the others nothing is asked: what they find is told as it is
	kinds = []string{
		string(Error), string(Timeout), string(Killed), string(Protocol),
		string(Unconfirmed), string(Missing), string(Lock),
	}
	thens = []string{string(Fail), string(Defer), string(Succeed)}
)

// ParseRules reads the administrator's rules: a JSON array of
//
//	{"name": "...", "match": {"commands": [], "delegates": [], "kinds": [],
//	 "codes": [], "message": "RE2", "stderr": "RE2"}, "retry": true, "then": "fail"}
//
// All errors are a *RuleError.
func ParseRules(text []byte) ([]Rule, error) {
	var raw []json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil || raw == nil {
		return nil, &RuleError{"", quote(text), "an array of rules"}
	}
	rules := make([]Rule, 0, len(raw))
	for i, one := range raw {
		r, err := parseRule(one)
		if err != nil {
			err.Key = fmt.Sprintf("[%d]%s", i, err.Key)
			return nil, err
		}
		rules = append(rules, r)
	}
	return rules, nil
}

func parseRule(text []byte) (Rule, *RuleError) {
	var in rule
	if err := strict(text, &in); err != nil {
		return Rule{}, &RuleError{"", quote(text), "an object of name, match, retry, then: " + err.Error()}
	}
	switch {
	case in.Name == "":
		return Rule{}, &RuleError{".name", quote(text), "a name, for the log and the error message"}
	case in.Match == nil:
		return Rule{}, &RuleError{".match", quote(text), "an object; {} matches every failure"}
	case in.Then != "" && !slices.Contains(thens, in.Then):
		return Rule{}, &RuleError{".then", fmt.Sprintf("%q", in.Then), "fail, defer or succeed"}
	}
	m, err := parseMatch(in.Match)
	if err != nil {
		err.Key = ".match" + err.Key
		return Rule{}, err
	}
	if err := answerable(in.Then, m.Commands); err != nil {
		return Rule{}, err
	}
	return Rule{Name: in.Name, Match: m, Retry: in.Retry, Then: Then(in.Then)}, nil
}

// answerable refuses a promise that Decide could not keep.
func answerable(then string, commands []string) *RuleError {
	if then == "" || then == string(Fail) {
		return nil
	}
	for _, verb := range commands {
		if verb != "DEL" {
			return &RuleError{".then", fmt.Sprintf("%q", then), "fail: a failed " + verb + " can't be answered with success, only a DEL can"}
		}
	}
	return nil
}

func parseMatch(text []byte) (Match, *RuleError) {
	var in match
	if err := strict(text, &in); err != nil {
		return Match{}, &RuleError{"", quote(text), "an object of commands, delegates, kinds, codes, message, stderr: " + err.Error()}
	}
	if err := allOf(in.Commands, verbs, ".commands"); err != nil {
		return Match{}, err
	}
	if err := allOf(in.Kinds, kinds, ".kinds"); err != nil {
		return Match{}, err
	}
	out := Match{Commands: in.Commands, Delegates: in.Delegates, Codes: in.Codes}
	for _, k := range in.Kinds {
		out.Kinds = append(out.Kinds, Kind(k))
	}
	var err *RuleError
	if out.Message, err = pattern(in.Message, ".message"); err != nil {
		return Match{}, err
	}
	if out.Stderr, err = pattern(in.Stderr, ".stderr"); err != nil {
		return Match{}, err
	}
	return out, nil
}

func allOf(have, known []string, key string) *RuleError {
	for i, v := range have {
		if !slices.Contains(known, v) {
			return &RuleError{fmt.Sprintf("%s[%d]", key, i), fmt.Sprintf("%q", v), "one of " + strings.Join(known, ", ")}
		}
	}
	return nil
}

func pattern(text, key string) (*regexp.Regexp, *RuleError) {
	if text == "" {
		return nil, nil
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, &RuleError{key, fmt.Sprintf("%q", text), "an RE2 expression: " + err.Error()}
	}
	return re, nil
}

// strict decodes one object and refuses keys that nothing would read: a rule
// that silently lacks half of its match would decide too much.
func strict(text []byte, into any) error {
	if !bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		return errors.New("not an object")
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more text after the object")
	}
	return nil
}

// quote shortens what was written for a message.
func quote(text []byte) string {
	const most = 120
	if len(text) > most {
		return string(text[:most]) + "..."
	}
	return string(text)
}
