package chain

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"go.uber.org/zap/zapcore"

	"github.com/ipam-guard/ipam-guard/pkg/conflist"
	"github.com/ipam-guard/ipam-guard/pkg/delegate"
	"github.com/ipam-guard/ipam-guard/pkg/policy"
)

// This file is for the administrator's tool: what a call would go by, and why.

// View is what a call would go by.
type View struct {
	Position string
	Network  string
	Delegate string // its type
	Settings Settings
	Origins  []Origin  // of every key, in the order of the documentation
	Problems []Problem // an ADD is refused for them
}

// Origin says where a setting comes from.
type Origin struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	From  string `json:"from"`
}

// ViewOf returns the view of a delegate's type, the node's file and a guard
// object, which may be nil.
func ViewOf(delegateType, nodeFile string, guard []byte) View {
	s, problems := settingsFor(delegateType, nodeFile, guard)
	return View{
		Delegate: delegateType, Settings: s, Problems: problems,
		Origins: origins(s, layersOf(delegateType, nodeFile, guard)),
	}
}

// ViewOfNetconf returns the view of what the guard gets on stdin. The error is
// what no call could go on with.
func ViewOfNetconf(stdin []byte, nodeFile string) (View, error) {
	c, fatal := readNetconf(stdin, nodeFile, role{ownName, func() bool { return false }})
	if fatal != nil {
		return View{Problems: c.problems}, fatal
	}
	v := ViewOf(c.typ, nodeFile, c.guard())
	v.Position, v.Network, v.Settings, v.Problems = string(c.position), c.name, c.settings, c.problems
	return v, nil
}

// layer is one object of settings, and where it stands.
type layer struct {
	text []byte
	from string
}

func layersOf(delegateType, nodeFile string, guard []byte) []layer {
	layers := []layer{{[]byte(delegate.Settings(delegateType)), "built in for " + delegateType}}
	if text, err := os.ReadFile(nodeFile); err == nil {
		if top, err := conflist.Parse(text); err == nil {
			layers = append(layers, layer{top.Value("defaults"), nodeFile + ", defaults"})
			if entries, err := top.Object("delegates"); err == nil {
				layers = append(layers, layer{entries.Value(delegateType), nodeFile + ", delegates." + delegateType})
			}
		}
	}
	return append(layers, layer{guard, "netconf"})
}

// origins finds for each key the last layer that decides it: over two settings
// that differ in everything, such a layer gives the same value.
func origins(merged Settings, layers []layer) []Origin {
	var found []Origin
	for _, k := range shown {
		o := Origin{Key: k.key, Value: k.show(merged), From: "built in"}
		value := k.show(builtin())
		for _, l := range layers {
			if len(l.text) == 0 {
				continue
			}
			a, b := builtin(), otherwise()
			a.apply(l.text, "", "")
			b.apply(l.text, "", "")
			if k.show(a) == k.show(b) {
				o.From, value = l.from, k.show(a)
			}
		}
		if value != o.Value {
			o.From = "built in: what was set does not fit together"
		}
		found = append(found, o)
	}
	return found
}

// otherwise differs from builtin in every value that is shown.
func otherwise() Settings {
	const d = time.Nanosecond // less than anybody can set
	return Settings{
		Timeout: PerVerb{d, d, d, d, d}, Deadline: PerVerb{d, d, d, d, d},
		Confirm: &Confirm{Line: "-"},
		Policy:  policy.Policy{Rules: []policy.Rule{{Name: "-"}}, Backoff: d, MaxBackoff: d},
		Log:     LogSettings{Level: zapcore.FatalLevel, File: "-", MaxSize: -1, Keep: -1},
		Lock:    LockSettings{Name: "-"},
	}
}

// shown are the keys of a view. A test holds them against keys.
var shown = [...]struct {
	key  string
	show func(Settings) string
}{
	{"mode", func(s Settings) string { return s.Mode }},
	{"lock.scope", func(s Settings) string { return s.Lock.Scope }},
	{"lock.name", func(s Settings) string { return s.Lock.Name }},
	{"lock.onUnavailable", func(s Settings) string { return s.Lock.OnUnavailable }},
	{"timeout.add", func(s Settings) string { return s.Timeout.Add.String() }},
	{"timeout.del", func(s Settings) string { return s.Timeout.Del.String() }},
	{"timeout.check", func(s Settings) string { return s.Timeout.Check.String() }},
	{"timeout.status", func(s Settings) string { return s.Timeout.Status.String() }},
	{"timeout.gc", func(s Settings) string { return s.Timeout.GC.String() }},
	{"deadline.add", func(s Settings) string { return s.Deadline.Add.String() }},
	{"deadline.del", func(s Settings) string { return s.Deadline.Del.String() }},
	{"deadline.gc", func(s Settings) string { return s.Deadline.GC.String() }},
	{"retry.attempts.add", func(s Settings) string { return fmt.Sprint(s.Attempts.Add) }},
	{"retry.attempts.del", func(s Settings) string { return fmt.Sprint(s.Attempts.Del) }},
	{"retry.backoff", func(s Settings) string { return s.Policy.Backoff.String() }},
	{"retry.maxBackoff", func(s Settings) string { return s.Policy.MaxBackoff.String() }},
	{"confirm", func(s Settings) string { return showConfirm(s.Confirm) }},
	{"policy.onError", func(s Settings) string { return string(s.Policy.OnError) }},
	{"policy.rules", func(s Settings) string { return showRules(s.Policy.Rules) }},
	{"gc", func(s Settings) string { return s.GC }},
	{"records.onUnavailable", func(s Settings) string { return s.Records }},
	{"log.level", func(s Settings) string { return s.Log.Level.String() }},
	{"log.file", func(s Settings) string { return s.Log.File }},
	{"log.maxSize", func(s Settings) string { return fmt.Sprint(s.Log.MaxSize) }},
	{"log.keep", func(s Settings) string { return fmt.Sprint(s.Log.Keep) }},
	{"stateDir", func(s Settings) string { return s.StateDir }},
	{"lockDir", func(s Settings) string { return s.LockDir }},
}

func showConfirm(c *Confirm) string {
	if c == nil {
		return ""
	}
	text, _ := json.Marshal(c) // strings, and JSON that was read
	return string(text)
}

// showRules names the administrator's rules.
func showRules(rules []policy.Rule) string {
	names := make([]string, 0, len(rules))
	for _, r := range rules {
		names = append(names, r.Name)
	}
	return strings.Join(names, ", ")
}

// Need is how much of a deadline must be left for an attempt to start.
func (s *Settings) Need(verb string) time.Duration { return s.need(verb) }

// Decide gives the verdict on an outcome, as a call would go by it.
func (s *Settings) Decide(o policy.Outcome) policy.Verdict {
	return s.policyFor(o.Verb).Decide(o)
}

// Told is a failure's text as the runtime gets it.
func Told(verb, text string) string {
	if verb == "DEL" {
		return reworded(text)
	}
	return text
}
