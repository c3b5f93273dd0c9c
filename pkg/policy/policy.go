// Package policy decides what becomes of a failed run of a delegate: is it
// tried again, and what is the runtime told?
//
// The field has fought over this for years. One side: return the error, so
// that kubelet retries. The other: a DEL should complete, and some callers send
// only one. Both are right for somebody, so it is for the administrator to say,
// rule by rule; built-in rules come after the administrator's.
//
// The package is pure: it reads no disk, no clock and no environment. The same
// outcome and the same rules give the same verdict. How an outcome comes about,
// and how a verdict is carried out, is left to pkg/chain.
package policy

import (
	"regexp"
	"slices"
	"time"
)

// Kind says how a run of a delegate ended.
type Kind string

// The kinds of outcome.
const (
	OK          Kind = "ok"          // exit 0 and, for ADD, a usable result
	Error       Kind = "error"       // the delegate printed a CNI error object
	Timeout     Kind = "timeout"     // the guard's clock ended it
	Killed      Kind = "killed"      // it died of a signal that the guard did not send
	Protocol    Kind = "protocol"    // exit status and output don't fit together
	Unconfirmed Kind = "unconfirmed" // a DEL that exits 0 without the confirmation asked for
	Missing     Kind = "missing"     // no such binary in CNI_PATH, or it can't be executed
	Lock        Kind = "lock"        // the host lock was not had
)

// Outcome is how one run of a delegate ended.
type Outcome struct {
	Verb     string // ADD, DEL, ...
	Delegate string // the delegate's type
	Kind     Kind
	Code     uint   // the CNI error code
	Message  string // msg of the error, then "; " and its details where there are any
	Stderr   string // the end of what the delegate wrote there
	Attempt  int    // the first is 1
}

// Then is what the runtime is told.
type Then string

// The answers that a rule can give.
const (
	Fail    Then = "fail"    // the error
	Defer   Then = "defer"   // success; released later, from a record on disk
	Succeed Then = "succeed" // success: it counts as released
)

// Match says which outcomes a rule is for. All that is present must match.
type Match struct {
	Commands  []string // verbs: ADD, DEL
	Delegates []string // delegate types
	Kinds     []Kind
	Codes     []uint
	Message   *regexp.Regexp // found anywhere in Outcome.Message
	Stderr    *regexp.Regexp // found anywhere in Outcome.Stderr
}

// Rule gives a verdict to the outcomes that it matches.
type Rule struct {
	Name  string
	Match Match
	Retry bool // try again while there are attempts left
	Then  Then // after the last attempt; "": the policy's OnError
}

// Policy is what one invocation goes by.
type Policy struct {
	Rules      []Rule // the administrator's
	OnError    Then   // Fail or Defer; "": Fail
	Attempts   int    // runs of the delegate in one invocation; below 1 counts as 1
	Backoff    time.Duration
	MaxBackoff time.Duration
}

// Verdict is what is to be done about an outcome.
type Verdict struct {
	Retry bool   // try again now, if there is time
	Then  Then   // what the runtime is told if not
	Rule  string // who decided: a rule's name, or "policy.onError"
}

// OnErrorRule names the last resort in a Verdict, where no rule matched.
const OnErrorRule = "policy.onError"

// Decide gives the verdict on an outcome. The first rule that matches decides.
// Only a DEL can be answered with anything but the error: an ADD has to have
// its address, and the other verbs ask for the truth.
func (p Policy) Decide(o Outcome) Verdict {
	if o.Kind == OK {
		return Verdict{Then: Succeed}
	}
	rule := p.find(o)
	v := Verdict{Rule: rule.Name, Then: rule.Then, Retry: rule.Retry && o.Attempt < p.Attempts}
	if v.Then == "" {
		v.Then = p.OnError
	}
	if v.Then == "" || o.Verb != "DEL" {
		v.Then = Fail
	}
	return v
}

func (p Policy) find(o Outcome) Rule {
	if rule, ok := p.own(o); ok {
		return rule
	}
	if b, ok := builtinFor(o); ok {
		return Rule{Name: b.Name, Retry: b.Retry, Then: b.Then}
	}
	return Rule{Name: OnErrorRule}
}

// own is the administrator's rule that decides.
func (p Policy) own(o Outcome) (rule Rule, ok bool) {
	i := slices.IndexFunc(p.Rules, func(r Rule) bool { return r.Match.matches(o) })
	if i < 0 {
		return Rule{}, false
	}
	return p.Rules[i], true
}

func (m Match) matches(o Outcome) bool {
	return oneOf(m.Commands, o.Verb) && oneOf(m.Delegates, o.Delegate) &&
		oneOf(m.Kinds, o.Kind) && oneOf(m.Codes, o.Code) &&
		found(m.Message, o.Message) && found(m.Stderr, o.Stderr)
}

func oneOf[T comparable](list []T, v T) bool {
	return len(list) == 0 || slices.Contains(list, v)
}

func found(re *regexp.Regexp, text string) bool {
	return re == nil || re.MatchString(text)
}

// Delay is how long to wait before attempt n+1: full jitter below a bound that
// doubles from Backoff to MaxBackoff. random is in [0,1).
func (p Policy) Delay(n int, random float64) time.Duration {
	bound := p.Backoff
	for ; n > 1 && bound < p.MaxBackoff; n-- {
		bound *= 2
	}
	return time.Duration(random * float64(min(bound, p.MaxBackoff)))
}
