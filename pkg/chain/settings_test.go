package chain_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ipam-guard/ipam-guard/pkg/chain"
	"github.com/ipam-guard/ipam-guard/pkg/policy"
)

func nodeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLayersMergeKeyByKey(t *testing.T) {
	file := nodeFile(t, `{
		"defaults": {"timeout": {"add": "11s", "check": "3s"}, "lock": {"scope": "host"}, "log": {"level": "debug", "maxSize": "1KiB"}, "retry": {"attempts": 5}},
		"delegates": {"whereabouts": {"timeout": {"add": "70s"}, "policy": {"onError": "defer", "rules": [{"name": "node", "match": {}}]}},
		              "host-local": {"mode": "bypass", "nonsense": 1}}}`)
	s, problems := chain.SettingsFor("whereabouts", file, []byte(`{
		"timeout": {"del": "7s"}, "lock": {"name": "shared"}, "log": {"file": ""}, "retry": {"attempts": {"add": 2}, "backoff": "1s"},
		"policy": {"rules": [{"name": "mine", "match": {"kinds": ["lock"]}, "then": "defer"}]}, "gc": "off", "stateDir": "/x/../y"}`))
	if len(problems) > 0 {
		t.Fatalf("problems: %v", problems)
	}
	want := chain.Builtin()
	want.Deadline.Add = 180 * time.Second // built in for whereabouts
	want.Timeout.Add = 70 * time.Second
	want.Timeout.Check = 3 * time.Second
	want.Timeout.Del = 7 * time.Second
	want.Lock.Scope, want.Lock.Name = "host", "shared"
	want.Log.Level, want.Log.File, want.Log.MaxSize = -1, "", 1024
	want.Attempts.Add, want.Attempts.Del = 2, 5
	want.Policy.Backoff, want.Policy.OnError = time.Second, policy.Defer
	want.Policy.Rules = []policy.Rule{{Name: "mine", Match: policy.Match{Kinds: []policy.Kind{policy.Lock}}, Then: policy.Defer}}
	want.GC, want.StateDir = "off", "/y"
	want.Confirm = &chain.Confirm{ // built in for whereabouts
		Line:   `\[debug\] IPManagement: `,
		OK:     `, (<nil>|overlappingrangeipreservations\.whereabouts\.cni\.cncf\.io "[^"<]+" not found)$`,
		Reject: `IPAM error updating pool`, Set: []byte(`{"log_level": "debug"}`),
	}
	if d := cmp.Diff(want, s, cmpopts.IgnoreUnexported()); d != "" {
		t.Error(d)
	}
}

func TestOneDurationForAll(t *testing.T) {
	s, problems := chain.SettingsFor("host-local", "", []byte(`{"timeout": "5s", "deadline": "1m"}`))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	five, minute := 5*time.Second, time.Minute
	if want := (chain.PerVerb{Add: five, Del: five, Check: five, GC: five, Status: 2 * time.Second}); s.Timeout != want {
		t.Errorf("timeout %+v", s.Timeout)
	}
	if want := (chain.PerVerb{Add: minute, Del: minute, GC: minute}); s.Deadline != want {
		t.Errorf("deadline %+v", s.Deadline)
	}
}

// Case 58, the reading part: a typo leaves the earlier layer's value in place
// and is reported with key, value and what would be right.
func TestProblemsNameKeyValueAndRemedy(t *testing.T) {
	tests := []struct{ guard, key, value, want string }{
		{`5`, "guard", "5", "object of settings"},
		{`null`, "guard", "null", "object of settings"},
		{`{"timeuot": "5s"}`, "guard.timeuot", "", "timeout"},
		{`{"lock": {"scop": "host"}}`, "guard.lock.scop", "", "scope, name, onUnavailable"},
		{`{"lock": "host"}`, "guard.lock", `"host"`, "object of scope, name, onUnavailable"},
		{`{"lock": {"scope": "node"}}`, "guard.lock.scope", `"node"`, "delegate, host, network or none"},
		{`{"lock": {"name": "../x"}}`, "guard.lock.name", `"../x"`, "letters"},
		{`{"Mode": "bypass"}`, "guard.Mode", "", "mode"},
		{`{"mode": "off"}`, "guard.mode", `"off"`, "guard or bypass"},
		{`{"timeout": 20}`, "guard.timeout", "20", `a duration like "20s"`},
		{`{"timeout": {"del": "20"}}`, "guard.timeout.del", `"20"`, `a duration like "20s"`},
		{`{"timeout": {"del": "-1s"}}`, "guard.timeout.del", `"-1s"`, "more than 0"},
		{`{"timeout": {"del": "25h"}}`, "guard.timeout.del", `"25h"`, "at most 24h"},
		{`{"deadline": {"check": "20s"}}`, "guard.deadline.check", "", "add, del, gc"},
		{`{"retry": {"attempts": 0}}`, "guard.retry.attempts", "0", "from 1 to 100"},
		{`{"retry": {"attempts": 2.5}}`, "guard.retry.attempts", "2.5", "whole number"},
		{`{"retry": {"attempts": {"gc": 2}}}`, "guard.retry.attempts.gc", "", "add, del"},
		{`{"policy": {"onError": "succeed"}}`, "guard.policy.onError", `"succeed"`, "fail or defer"},
		{`{"policy": {"rules": [{"name": "a", "match": {"kinds": ["x"]}}]}}`, "guard.policy.rules[0].match.kinds[0]", `"x"`, "timeout"},
		{`{"log": {"file": "/dev/stdout"}}`, "guard.log.file", `"/dev/stdout"`, ""},
		{`{"log": {"maxSize": "10MB"}}`, "guard.log.maxSize", `"10MB"`, "10MiB"},
		{`{"log": {"level": "loud"}}`, "guard.log.level", `"loud"`, "debug, info, warn or error"},
		{`{"stateDir": "state"}`, "guard.stateDir", `"state"`, "absolute"},
		{`{"confirm": {"line": "("}}`, "guard.confirm", `{"line": "("}`, "ok"},
		{`{"mode": "guard", "mode": "bypass"}`, "guard.mode", "", "twice"},
		{`{"deadline": {"del": "20s"}}`, "guard.deadline.del", `"20s"`, "at least 21s (timeout.del 20s + 1s)"},
		{`{"timeout": {"add": "100s"}}`, "guard.deadline.add", `"1m50s"`, "at least 2m2s (timeout.add 1m40s + timeout.del 20s + 2s)"},
		{`{"retry": {"backoff": "10s"}}`, "guard.retry.maxBackoff", `"5s"`, "retry.backoff, which is 10s"},
	}
	for _, tt := range tests {
		_, problems := chain.SettingsFor("host-local", "", []byte(tt.guard))
		if len(problems) != 1 {
			t.Errorf("%s: problems %v, want one", tt.guard, problems)
			continue
		}
		p := problems[0]
		if p.Key != tt.key || p.Value != tt.value || !strings.Contains(p.Want, tt.want) {
			t.Errorf("%s:\n got key %q value %q: want %q", tt.guard, p.Key, p.Value, p.Want)
		}
	}
}

func TestBadSettingsLeaveTheOthers(t *testing.T) {
	s, problems := chain.SettingsFor("host-local", "", []byte(`{"timeout": {"del": "x", "add": "12s"}, "lock": {"scope": "network", "x": 1}, "deadline": {"gc": "1s"}}`))
	if len(problems) != 3 {
		t.Errorf("problems: %v", problems)
	}
	want := chain.Builtin()
	want.Timeout.Add, want.Lock.Scope = 12*time.Second, "network"
	if d := cmp.Diff(want, s); d != "" {
		t.Error(d)
	}
}

func TestNodeFileProblems(t *testing.T) {
	for text, key := range map[string]string{
		`{`:                  "node's file",
		`{"default": {}}`:    "default",
		`{"defaults": []}`:   "defaults",
		`{"delegates": [1]}`: "delegates",
		`{"delegates": {"host-local": {"mode": "no"}}}`: "delegates.host-local.mode",
		`{"defaults": {"gc": true}}`:                    "defaults.gc",
	} {
		file := nodeFile(t, text)
		s, problems := chain.SettingsFor("host-local", file, nil)
		if len(problems) != 1 || problems[0].Key != key || problems[0].Origin != file {
			t.Errorf("%s: %+v, want one of %s", text, problems, key)
		}
		if d := cmp.Diff(chain.Builtin(), s); d != "" {
			t.Errorf("%s changed the settings: %s", text, d)
		}
	}
	if _, problems := chain.SettingsFor("host-local", filepath.Join(t.TempDir(), "none"), nil); len(problems) > 0 {
		t.Errorf("no file is a problem: %v", problems)
	}
	if _, problems := chain.SettingsFor("host-local", t.TempDir(), nil); len(problems) != 1 {
		t.Errorf("a folder as the node's file: %v", problems)
	}
}

// However the timeouts and deadlines are set, what is gone by in the end fits:
// no verb has less of a deadline than one attempt needs.
func FuzzSettings(f *testing.F) {
	f.Add(`{"timeout": {"del": "100s"}, "deadline": {"add": "1s"}}`, "host-local")
	f.Add(`{"timeout": "3h", "deadline": "5s", "lock": {"scope": "none"}}`, "whereabouts")
	f.Add(`{"policy": {"rules": [{"name": "x", "match": {}}]}, "confirm": {"line": "a", "ok": "b", "set": {}}}`, "dhcp")
	f.Add(`{"retry": {"attempts": {"add": 3}, "maxBackoff": "1ns"}}`, "static")
	f.Fuzz(func(t *testing.T, guard, delegate string) {
		s, problems := chain.SettingsFor(delegate, "", []byte(guard))
		for _, p := range problems {
			if p.Key == "" || p.Want == "" || p.Origin == "" {
				t.Errorf("problem without key, remedy or origin: %+v", p)
			}
		}
		slack := []struct {
			verb       string
			have, need time.Duration
		}{
			{"ADD", s.Deadline.Add, s.Timeout.Add + s.Timeout.Del + 2*time.Second},
			{"DEL", s.Deadline.Del, s.Timeout.Del + time.Second},
			{"GC", s.Deadline.GC, s.Timeout.GC + time.Second},
		}
		for _, v := range slack {
			if v.have < v.need {
				t.Errorf("%s: deadline %s is below its need %s (%s)", v.verb, v.have, v.need, fmt.Sprint(problems))
			}
		}
		if s.Attempts.Add < 1 || s.Attempts.Del < 1 || s.StateDir == "" || s.LockDir == "" || s.Policy.MaxBackoff < s.Policy.Backoff {
			t.Errorf("settings that can't be gone by: %+v", s)
		}
	})
}
