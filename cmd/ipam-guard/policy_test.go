package main_test

import (
	"testing"
	"time"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

const refusedMsg = "dial tcp 10.0.0.1:443: connect: connection refused"

// What passes by itself is tried again, what doesn't isn't.
func TestRetryOfDEL(t *testing.T) {
	t.Parallel()
	refused := fail(999, refusedMsg)
	tests := map[string]struct {
		del    any
		rc     int
		calls  int
		settle Object
	}{
		"refused once":      {[]string{refused, "free"}, 0, 2, nil},
		"refused always":    {refused, 1, 3, nil},
		"one attempt":       {refused, 1, 1, Object{"attempts": 1}},
		"code 11":           {[]string{fail(11, "busy"), "free"}, 0, 2, nil},
		"died":              {[]string{"die KILL", "free"}, 0, 2, nil},
		"hung":              {[]string{"sleep 60s", "free"}, 0, 2, nil},
		"something else":    {[]string{fail(999, "no such pool"), "free"}, 1, 1, nil},
		"junk":              {[]string{`print "junk"; exit 1`, "free"}, 1, 1, nil},
		"another to follow": {[]string{refused, fail(999, "no such pool"), "free"}, 1, 2, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := guardtest.New(t)
			n.Run(t, "ADD", "c1", ask(nil, nil)).OK(t)
			retry := Object{"backoff": "1ms"}
			for k, v := range tt.settle {
				retry[k] = v
			}
			n.SetScript(t, Script{"DEL": tt.del})
			r := n.Run(t, "DEL", "c1", ask(nil, Object{"retry": retry, "timeout": Object{"del": "5s"}}))
			if r.RC != tt.rc {
				t.Errorf("have %+v", r)
			}
			if have := len(n.Calls(t, "DEL")); have != tt.calls {
				t.Errorf("%d attempts, want %d", have, tt.calls)
			}
			n.NoOverlap(t)
			if tt.rc == 0 {
				wantLeases(t, n)
				return
			}
			wantLeases(t, n, "c1/eth0")
			has(t, r.Error(t).Details, "container c1", "call DEL again")
		})
	}
}

// No attempt starts that would not have its whole timeout.
func TestNoAttemptOnScraps(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	r := n.Run(t, "DEL", "c1", ask(Script{"DEL": "sleep 700ms; " + fail(999, refusedMsg)}, Object{
		"timeout": "2s", "deadline": Object{"del": "3500ms"}, "retry": Object{"attempts": 50, "backoff": "1ms", "maxBackoff": "1ms"},
	}))
	has(t, r.Error(t).Msg, refusedMsg)
	// A second one would have begun with 2.8 s left at most and needs 3 s.
	wantCalls(t, n, "DEL")
	if r.Took > 30*time.Second {
		t.Errorf("took %v", r.Took)
	}
}

// The administrator's rules come first, then the built-in ones, then onError.
func TestRules(t *testing.T) {
	t.Parallel()
	rule := func(then string, match Object) Object {
		return Object{"policy": Object{"rules": []any{Object{"name": "mine", "match": match, "then": then}}}}
	}
	boom := fail(100, "boom")
	tests := map[string]struct {
		del      string
		settings Object
		rc       int
		verdict  string
		rule     string
	}{
		"no rule":             {boom, nil, 1, "fail", "policy.onError"},
		"fail":                {boom, rule("fail", Object{}), 1, "fail", "mine"},
		"succeed":             {boom, rule("succeed", Object{"codes": []int{100}}), 0, "succeed", "mine"},
		"of another code":     {boom, rule("succeed", Object{"codes": []int{101}}), 1, "fail", "policy.onError"},
		"by message":          {boom, rule("succeed", Object{"message": "^bo+m$"}), 0, "succeed", "mine"},
		"by stderr":           {`stderr "it is gone\n"; exit 3`, rule("succeed", Object{"stderr": "gone", "kinds": []string{"protocol"}}), 0, "succeed", "mine"},
		"before the built-in": {fail(999, "Did not find reserved IP for container c1"), rule("fail", Object{"commands": []string{"DEL"}}), 1, "fail", "mine"},
		"of another delegate": {boom, rule("succeed", Object{"delegates": []string{"other"}}), 1, "fail", "policy.onError"},
		"defer":               {boom, rule("defer", Object{}), 0, "defer", "mine"},
		"onError defer":       {boom, Object{"policy": Object{"onError": "defer"}}, 0, "defer", "policy.onError"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := guardtest.New(t)
			r := n.Run(t, "DEL", "c1", ask(Script{"DEL": tt.del}, tt.settings))
			line := lastLine(t, n)
			if r.RC != tt.rc || line["verdict"] != tt.verdict || line["rule"] != tt.rule {
				t.Errorf("have %+v\n and in the log %v", r, line)
			}
			if tt.rc == 0 {
				if r.Stdout != "" {
					t.Errorf("stdout %q", r.Stdout)
				}
				return
			}
			r.Error(t)
		})
	}
}

// A rule for ADD can't make an address out of nothing.
func TestRulesDontSaveAnADD(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	match := Object{"policy": Object{"rules": []any{Object{"name": "all", "match": Object{}, "then": "succeed"}}}}
	if e := n.Run(t, "ADD", "c1", ask(Script{"ADD": "alloc; " + fail(100, "no")}, match)).Error(t); e.Code != 100 {
		t.Errorf("have %+v", e)
	}
	wantCalls(t, n, "ADD DEL")
	wantLeases(t, n)
}

// A retry that a rule asks for, with the time and the attempts that there are.
func TestRuleThatRetries(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	settings := Object{
		"retry":  Object{"attempts": 5, "backoff": "1ms"},
		"policy": Object{"rules": []any{Object{"name": "again", "match": Object{"message": "odd"}, "retry": true, "then": "succeed"}}},
	}
	n.Run(t, "DEL", "c1", ask(Script{"DEL": fail(999, "odd")}, settings)).OK(t)
	wantCalls(t, n, "DEL DEL DEL DEL DEL")
}
