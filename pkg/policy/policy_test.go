package policy_test

import (
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/ipam-guard/ipam-guard/pkg/policy"
)

// failed is an outcome of a DEL that ended with a CNI error.
func failed(message string) policy.Outcome {
	return policy.Outcome{Verb: "DEL", Delegate: "whereabouts", Kind: policy.Error, Code: 999, Message: message, Attempt: 1}
}

func kind(k policy.Kind) policy.Outcome {
	return policy.Outcome{Verb: "DEL", Delegate: "host-local", Kind: k, Attempt: 1}
}

func verb(o policy.Outcome, v string) policy.Outcome { o.Verb = v; return o }

func code(o policy.Outcome, c uint) policy.Outcome { o.Code = c; return o }

func TestBuiltinRules(t *testing.T) {
	tests := []struct {
		name string
		o    policy.Outcome
		rule string
		then policy.Then
		more bool // again, while attempts are left
	}{
		{"ok", kind(policy.OK), "", policy.Succeed, false},
		{"timeout", kind(policy.Timeout), "transient", policy.Fail, true},
		{"killed", kind(policy.Killed), "transient", policy.Fail, true},
		{"unconfirmed", kind(policy.Unconfirmed), "transient", policy.Fail, true},
		{"missing", kind(policy.Missing), "missing", policy.Fail, false},
		{"lock", kind(policy.Lock), "lock", policy.Fail, false},
		{"protocol", kind(policy.Protocol), policy.OnErrorRule, policy.Fail, false},
		{"unknown", failed("no luck today"), policy.OnErrorRule, policy.Fail, false},
		{"refused", failed("dial tcp 10.0.0.1:443: connect: connection refused"), "transient", policy.Fail, true},
		{"deadline", failed("context deadline exceeded"), "transient", policy.Fail, true},
		{"try again", code(failed("busy"), 11), "transient", policy.Fail, true},

		// Case 12: texts that mean that there is nothing left to release.
		{"whereabouts", failed("Did not find reserved IP for container 4fa"), "already-released", policy.Succeed, false},
		{"k8s pod", failed("datastore: unknown pod"), "already-released", policy.Succeed, false},

		// Case 16: texts that don't.
		{"denied", failed("open /var/lib/cni: permission denied"), policy.OnErrorRule, policy.Fail, false},
		{"dial", failed("dial unix /run/cni/dhcp.sock: connect: no such file or directory"), policy.OnErrorRule, policy.Fail, false},
		{"plugin", failed(`failed to find plugin "x" in path [/opt/cni/bin]`), policy.OnErrorRule, policy.Fail, false},
		{"ranges", failed("no IP ranges specified"), policy.OnErrorRule, policy.Fail, false},
		{"pod", failed(`pods "web-0" not found`), policy.OnErrorRule, policy.Fail, false},
		{"both", failed("Did not find reserved IP for container 4fa: dial tcp: connection refused"), "transient", policy.Fail, true},
		{"by timeout", failed("Did not find reserved IP for container 4fa: i/o timeout"), "transient", policy.Fail, true},
		{"its words from a crash", policy.Outcome{Verb: "DEL", Kind: policy.Protocol, Message: "datastore: unknown pod", Attempt: 1}, policy.OnErrorRule, policy.Fail, false},

		{"exhausted", verb(failed("no IP addresses available in range set: 10.0.0.2-10.0.0.2"), "ADD"), "exhausted", policy.Fail, false},
		{"an ADD is never answered with success", verb(failed("Did not find reserved IP for container 4fa"), "ADD"), policy.OnErrorRule, policy.Fail, false},
	}
	p := policy.Policy{OnError: policy.Fail, Attempts: 3}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, want := p.Decide(tt.o), (policy.Verdict{Rule: tt.rule, Then: tt.then, Retry: tt.more}); got != want {
				t.Errorf("Decide = %+v, want %+v", got, want)
			}
		})
	}
}

// Case 11, the policy's part: what each kind of failure becomes under each of
// the three answers.
func TestAnswers(t *testing.T) {
	outcomes := map[string]policy.Outcome{
		"deadline": failed("context deadline exceeded"), "timeout": kind(policy.Timeout), "unknown": failed("no luck"),
	}
	for name, o := range outcomes {
		o.Attempt = 3
		for _, then := range []policy.Then{policy.Fail, policy.Defer, policy.Succeed} {
			p := policy.Policy{Attempts: 3, Rules: []policy.Rule{{Name: "mine", Then: then}}}
			if v := p.Decide(o); v.Then != then || v.Retry || v.Rule != "mine" {
				t.Errorf("%s under %s: %+v", name, then, v)
			}
		}
		p := policy.Policy{Attempts: 3, OnError: policy.Defer}
		if v := p.Decide(o); v.Then != policy.Defer {
			t.Errorf("%s under onError defer: %+v", name, v)
		}
	}
}

func TestFirstMatchDecides(t *testing.T) {
	re := regexp.MustCompile
	o := policy.Outcome{Verb: "DEL", Delegate: "whereabouts", Kind: policy.Error, Code: 100, Message: "boom; at ten", Stderr: "trace", Attempt: 1}
	matching := policy.Match{
		Commands: []string{"ADD", "DEL"}, Delegates: []string{"whereabouts"}, Kinds: []policy.Kind{policy.Error},
		Codes: []uint{7, 100}, Message: re("^boom"), Stderr: re("race$"),
	}
	others := map[string]func(*policy.Match){
		"commands":  func(m *policy.Match) { m.Commands = []string{"ADD"} },
		"delegates": func(m *policy.Match) { m.Delegates = []string{"host-local"} },
		"kinds":     func(m *policy.Match) { m.Kinds = []policy.Kind{policy.Timeout} },
		"codes":     func(m *policy.Match) { m.Codes = []uint{7} },
		"message":   func(m *policy.Match) { m.Message = re("^bang") },
		"stderr":    func(m *policy.Match) { m.Stderr = re("^x") },
	}
	last := policy.Rule{Name: "last", Then: policy.Defer}
	first := policy.Rule{Name: "first", Match: matching, Then: policy.Succeed}
	if v := (policy.Policy{Rules: []policy.Rule{first, last}}).Decide(o); v.Rule != "first" {
		t.Errorf("all of the match fits, but %q decided", v.Rule)
	}
	for name, change := range others {
		m := matching
		change(&m)
		p := policy.Policy{Rules: []policy.Rule{{Name: "first", Match: m}, last}}
		if v := p.Decide(o); v.Rule != "last" {
			t.Errorf("%s does not fit, but %q decided", name, v.Rule)
		}
	}
}

func TestRetryEndsWithTheAttempts(t *testing.T) {
	p := policy.Policy{Attempts: 3}
	for attempt, want := range map[int]bool{1: true, 2: true, 3: false, 4: false} {
		o := kind(policy.Timeout)
		o.Attempt = attempt
		if got := p.Decide(o).Retry; got != want {
			t.Errorf("attempt %d: retry %v, want %v", attempt, got, want)
		}
	}
}

func TestDelayDoublesUnderFullJitter(t *testing.T) {
	p := policy.Policy{Backoff: 200 * time.Millisecond, MaxBackoff: time.Second}
	var bounds []time.Duration
	for n := 1; n <= 6; n++ {
		bounds = append(bounds, p.Delay(n, 1))
		if p.Delay(n, 0) != 0 {
			t.Errorf("Delay(%d, 0) = %s: jitter is not full", n, p.Delay(n, 0))
		}
	}
	ms := time.Millisecond
	if want := []time.Duration{200 * ms, 400 * ms, 800 * ms, 1000 * ms, 1000 * ms, 1000 * ms}; !slices.Equal(bounds, want) {
		t.Errorf("bounds %v, want %v", bounds, want)
	}
	if d := p.Delay(1_000_000, 0.5); d != 500*ms {
		t.Errorf("after a million attempts: %s", d)
	}
}

func TestBuiltinsAreExplained(t *testing.T) {
	for _, b := range policy.Builtins() {
		if b.Name == "" || b.Why == "" {
			t.Errorf("rule %+v lacks its name or the report behind it", b)
		}
		for _, re := range []string{b.Message, b.Unless} {
			if _, err := regexp.Compile(re); err != nil {
				t.Errorf("%s: %v", b.Name, err)
			}
		}
	}
}

// Two built-in rules are called transient, and each has a reason of its own: that
// of a refused connection is not that of a timeout.
func TestTheBuiltinThatDecides(t *testing.T) {
	refused := verb(failed("dial tcp 10.0.0.1:443: connect: connection refused"), "ADD")
	var p policy.Policy
	for why, o := range map[string]policy.Outcome{"vpc-cni #2350": refused, "calico #11824": kind(policy.Timeout)} {
		b, ok := p.Builtin(o)
		if v := p.Decide(o); !ok || b.Name != "transient" || v.Rule != b.Name || !regexp.MustCompile(why).MatchString(b.Why) {
			t.Errorf("%s: %q decides, because of %q; want %s", o.Kind, v.Rule, b.Why, why)
		}
	}
	own := policy.Policy{Rules: []policy.Rule{{Name: "transient"}}}
	for name, does := range map[string]bool{
		"the administrator's rule of that name": decides(own.Builtin(refused)),
		"a success":                             decides(p.Builtin(kind(policy.OK))),
		"an error that no rule knows":           decides(p.Builtin(failed("no luck today"))),
	} {
		if does {
			t.Errorf("a built-in rule decides about %s", name)
		}
	}
}

func decides(_ policy.Builtin, ok bool) bool { return ok }
