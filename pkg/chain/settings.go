package chain

import (
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap/zapcore"

	"github.com/ipam-guard/ipam-guard/pkg/policy"
)

// Settings is what one invocation goes by, after all layers are merged. The
// keys, their defaults and their meaning are in docs/configuration.md; keys
// lists how each is read.
type Settings struct {
	Mode     string // "guard" or "bypass"
	Lock     LockSettings
	Timeout  PerVerb // what each run of the delegate gets, from the moment the lock is held
	Deadline PerVerb // all that one invocation may take; Check and Status are unused
	Attempts AttemptSettings
	Confirm  *Confirm
	Policy   policy.Policy // Rules, OnError, Backoff and MaxBackoff; Attempts depends on the verb
	GC       string        // "forward", "own" or "off"
	Records  string        // records.onUnavailable: "fail" or "proceed"
	Log      LogSettings
	StateDir string
	LockDir  string
}

// LockSettings choose the host lock.
type LockSettings struct {
	Scope         string // "delegate", "host", "network" or "none"
	Name          string // one lock by this name, whatever the scope
	OnUnavailable string // "fail" or "proceed"
}

// PerVerb holds one duration per verb.
type PerVerb struct{ Add, Del, Check, Status, GC time.Duration }

// AttemptSettings hold how often the delegate may run in one invocation.
type AttemptSettings struct{ Add, Del int }

// LogSettings choose the log file. MaxSize is in bytes.
type LogSettings struct {
	Level   zapcore.Level
	File    string
	MaxSize int64
	Keep    int
}

// Of returns the duration for a verb.
func (p PerVerb) Of(verb string) time.Duration {
	switch verb {
	case "ADD":
		return p.Add
	case "DEL":
		return p.Del
	case "CHECK":
		return p.Check
	case "STATUS":
		return p.Status
	}
	return p.GC
}

// builtin returns the defaults.
func builtin() Settings {
	const s = time.Second
	return Settings{
		Mode:     "guard",
		Lock:     LockSettings{Scope: "delegate", OnUnavailable: "fail"},
		Timeout:  PerVerb{Add: 30 * s, Del: 20 * s, Check: 10 * s, Status: 2 * s, GC: 30 * s},
		Deadline: PerVerb{Add: 110 * s, Del: 50 * s, GC: 110 * s},
		Attempts: AttemptSettings{Add: 1, Del: 3},
		Policy:   policy.Policy{OnError: policy.Fail, Backoff: 200 * time.Millisecond, MaxBackoff: 5 * s},
		GC:       "forward",
		Records:  "fail",
		Log:      LogSettings{Level: zapcore.InfoLevel, File: "/var/log/ipam-guard/ipam-guard.log", MaxSize: 10 << 20, Keep: 2},
		StateDir: "/var/lib/cni/ipam-guard",
		LockDir:  "/run/ipam-guard",
	}
}

// grace is how long a delegate may take to end after SIGTERM.
const grace = time.Second

// need is how much of the deadline must be left for an attempt to start: an
// attempt, once started, always has its whole timeout. An ADD also needs the
// time to roll back.
func (s *Settings) need(verb string) time.Duration {
	if verb == "ADD" {
		return s.Timeout.Add + s.Timeout.Del + 2*grace
	}
	return s.Timeout.Of(verb) + grace
}

// policyFor returns the policy with the attempts that a verb has.
func (s *Settings) policyFor(verb string) policy.Policy {
	p := s.Policy
	switch verb {
	case "ADD":
		p.Attempts = s.Attempts.Add
	case "DEL":
		p.Attempts = s.Attempts.Del
	}
	return p
}

// Problem is something wrong with the configuration.
type Problem struct {
	Key    string // like "guard.timeout.del"
	Value  string // as it was written; "" if there is none
	Want   string // what would be right
	Origin string // where it stands: "netconf", the node's file, ...
}

func (p Problem) String() string {
	if p.Value == "" {
		return fmt.Sprintf("%s: %s (%s)", p.Key, p.Want, p.Origin)
	}
	return fmt.Sprintf("%s: %s is not valid, want %s (%s)", p.Key, p.Value, p.Want, p.Origin)
}

// check finds what can't be right in the merged settings and puts the built-in
// values in the place of those that don't fit together, so that a caller that
// must go on can.
func (s *Settings) check(base Settings) []Problem {
	var problems []Problem
	for _, verb := range [...]string{"ADD", "DEL", "GC"} {
		if p := s.checkDeadline(base, verb); p != nil {
			problems = append(problems, *p)
		}
	}
	if s.Policy.MaxBackoff < s.Policy.Backoff {
		problems = append(problems, Problem{
			"guard.retry.maxBackoff", quoted(s.Policy.MaxBackoff),
			fmt.Sprintf("at least retry.backoff, which is %s", s.Policy.Backoff), merged,
		})
		s.Policy.Backoff, s.Policy.MaxBackoff = base.Policy.Backoff, base.Policy.MaxBackoff
	}
	return problems
}

// merged is the origin of a problem that no single layer has.
const merged = "all layers merged"

func quoted(d time.Duration) string { return fmt.Sprintf("%q", d) }

func (s *Settings) checkDeadline(base Settings, verb string) *Problem {
	need := s.need(verb)
	have := s.Deadline.field(verb)
	if *have >= need {
		return nil
	}
	key := strings.ToLower(verb)
	how := fmt.Sprintf("timeout.%s %s + 1s", key, s.Timeout.Of(verb))
	if verb == "ADD" {
		how = fmt.Sprintf("timeout.add %s + timeout.del %s + 2s", s.Timeout.Add, s.Timeout.Del)
	}
	p := &Problem{"guard.deadline." + key, quoted(*have), fmt.Sprintf("at least %s (%s)", need, how), merged}
	*have = *base.Deadline.field(verb)
	*s.Timeout.field(verb) = base.Timeout.Of(verb)
	if s.need(verb) > *have { // a del timeout that alone is too long for an ADD
		s.Timeout.Del = base.Timeout.Del
	}
	return p
}

// field returns the place of a verb's duration.
func (p *PerVerb) field(verb string) *time.Duration {
	switch verb {
	case "ADD":
		return &p.Add
	case "DEL":
		return &p.Del
	case "CHECK":
		return &p.Check
	case "STATUS":
		return &p.Status
	}
	return &p.GC
}
