package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ipam-guard/ipam-guard/pkg/chain"
	"github.com/ipam-guard/ipam-guard/pkg/conflist"
	"github.com/ipam-guard/ipam-guard/pkg/policy"
)

type explainOptions struct {
	outcome  policy.Outcome
	kind     string
	nodeFile string
	conf     string
	line     string
}

// explained is what becomes of one outcome.
type explained struct {
	Call     *loggedCall `json:"call,omitempty"` // of a line of the log
	Verb     string      `json:"verb"`
	Delegate string      `json:"delegate"`
	Kind     string      `json:"kind"`
	Attempt  int         `json:"attempt"`
	Rule     string      `json:"rule"`
	Origin   string      `json:"origin"` // administrator, built in, setting; none: no rule is asked
	Retry    bool        `json:"retry"`
	Then     string      `json:"then"`
	Why      string      `json:"why,omitempty"`
	Told     string      `json:"told"` // what the runtime gets
	Notes    []string    `json:"notes,omitempty"`
}

func explainCommand(t *tool) *cobra.Command {
	o := explainOptions{}
	cmd := &cobra.Command{
		Use:   "explain [-]",
		Short: "Which rule decides about a failure, and what the runtime is told",
		Long: `explain asks the policy of this node about an outcome: which rule decides, whether
the delegate is run again, and what the runtime is told. The outcome comes from
flags, from a line of the guard's log (--line), or from lines of it on stdin (-),
of which those are explained that failed, with the time and the container of each.

Settings are those of now: of the node's file, and with --conf of a guarded
configuration. Where the log says that another rule decided, or that the runtime
was told something else, both are said.`,
		Example: `  ipam-guardctl explain --delegate whereabouts --kind timeout
  ipam-guardctl explain --message 'dial tcp 10.96.0.1:443: connection refused' --attempt 3
  tail -n 20 /var/log/ipam-guard/ipam-guard.log | ipam-guardctl explain -`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(args); err != nil {
				return err
			}
			if !cmd.Flags().Changed("code") {
				o.outcome.Code = codeOf(o.outcome.Kind)
			}
			items, err := t.explainAll(o, len(args) > 0)
			if err != nil {
				return err
			}
			return t.showExplained(items)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.outcome.Verb, "verb", "DEL", "ADD, DEL, CHECK, STATUS or GC")
	f.StringVar(&o.outcome.Delegate, "delegate", "host-local", "the delegate's type")
	f.StringVar(&o.kind, "kind", string(policy.Error), "how the run ended: "+strings.Join(kinds(), ", "))
	f.UintVar(&o.outcome.Code, "code", 0, "the CNI error code; without it the one that the guard gives this kind")
	f.StringVar(&o.outcome.Message, "message", "", "the error's msg and details")
	f.StringVar(&o.outcome.Stderr, "stderr", "", "what the delegate wrote to stderr")
	f.IntVar(&o.outcome.Attempt, "attempt", 1, "which run of the call it was")
	f.StringVar(&o.nodeFile, "node-file", nodeFile, "the settings of the node")
	f.StringVar(&o.conf, "conf", "", "a guarded configuration `FILE`, for its guard object")
	f.StringVar(&o.line, "line", "", "a `LINE` of the guard's log, in place of the flags for an outcome")
	return cmd
}

func kinds() []string {
	var names []string
	for _, k := range []policy.Kind{policy.OK, policy.Error, policy.Timeout, policy.Killed, policy.Protocol, policy.Unconfirmed, policy.Missing, policy.Lock} {
		names = append(names, string(k))
	}
	return names
}

// codeOf is what the guard makes of a run without an error object: code 11 is the
// specification's try again.
func codeOf(k policy.Kind) uint {
	switch k {
	case policy.OK:
		return 0
	case policy.Error, policy.Protocol:
		return 999
	}
	return 11
}

func (o *explainOptions) check(args []string) error {
	o.outcome.Kind = policy.Kind(o.kind)
	switch {
	case len(args) > 0 && args[0] != "-":
		return usagef("%s: want - for lines of the log on stdin, --line for one of them, or flags", args[0])
	case len(args) > 0 && o.line != "":
		return usagef("- and --line: want one of them")
	case !slices.Contains([]string{"ADD", "DEL", "CHECK", "STATUS", "GC"}, o.outcome.Verb):
		return usagef("--verb %s: want ADD, DEL, CHECK, STATUS or GC", o.outcome.Verb)
	case !slices.Contains(kinds(), o.kind):
		return usagef("--kind %s: want one of %s", o.kind, strings.Join(kinds(), ", "))
	case o.outcome.Attempt < 1:
		return usagef("--attempt %d: want at least 1", o.outcome.Attempt)
	}
	return nil
}

func (t *tool) explainAll(o explainOptions, fromStdin bool) ([]explained, error) {
	switch {
	case fromStdin:
		return t.explainLines(o, t.in)
	case o.line != "":
		item, err := o.explainLine([]byte(o.line))
		return []explained{item}, named("--line", err)
	}
	item, err := o.explain(o.outcome)
	return []explained{item}, err
}

func (o explainOptions) explain(outcome policy.Outcome) (explained, error) {
	guard, err := o.guardObject(outcome.Delegate)
	if err != nil {
		return explained{}, err
	}
	view := chain.ViewOf(outcome.Delegate, o.nodeFile, guard)
	s := &view.Settings
	v := s.Decide(outcome)
	e := explained{
		Verb: outcome.Verb, Delegate: outcome.Delegate, Kind: string(outcome.Kind), Attempt: outcome.Attempt,
		Rule: v.Rule, Retry: v.Retry, Then: string(v.Then), Told: told(outcome, v),
	}
	if e.Why, e.Origin = originOf(outcome, v.Rule, s.Policy); e.Origin == noOrigin {
		e.Rule = ""
	}
	if v.Retry {
		e.Notes = append(e.Notes, fmt.Sprintf("run again while %s is left of the deadline of %s", s.Need(outcome.Verb), s.Deadline.Of(outcome.Verb)))
	}
	if s.Mode == "bypass" {
		e.Notes = append(e.Notes, "mode is bypass: no rule is asked, the runtime gets what the delegate says")
	}
	for _, p := range view.Problems {
		e.Notes = append(e.Notes, "left out of the settings: "+inNodeFile(p, o.nodeFile))
	}
	return e, nil
}

// guardObject is that of the configuration's guard for this delegate.
func (o explainOptions) guardObject(delegateType string) ([]byte, error) {
	if o.conf == "" {
		return nil, nil
	}
	s, err := readFile(o.conf)
	if err != nil {
		return nil, err
	}
	for _, p := range s.conf.Plugins {
		for _, part := range []conflist.Part{p.Part, p.IPAM} {
			if part.Guarded() && part.Type == delegateType {
				return part.Guard.Value("guard"), nil
			}
		}
	}
	return nil, fmt.Errorf("%s has no guard in front of %s: say --delegate", o.conf, delegateType)
}

// noOrigin is that of no rule: none is asked about a success, and none about
// CHECK, STATUS and GC.
const noOrigin = "none"

// originOf says who made the rule that decided, and why.
func originOf(o policy.Outcome, rule string, p policy.Policy) (why, origin string) {
	if o.Kind == policy.OK || o.Verb != "ADD" && o.Verb != "DEL" {
		return "", noOrigin
	}
	if b, ok := p.Builtin(o); ok {
		return b.Why, "built in"
	}
	if rule == policy.OnErrorRule {
		return "no rule matches", "setting"
	}
	return "", "administrator"
}

// told is what the runtime gets, in the end.
func told(o policy.Outcome, v policy.Verdict) string {
	text := "success"
	switch {
	case o.Kind == policy.OK:
		return text
	case v.Then == policy.Succeed:
		text = "success: it counts as released"
	case v.Then == policy.Defer:
		text = "success: a record on disk says that it must be released, and it is, later. If that record can't be written: the error, code 11"
	default:
		text = fmt.Sprintf("an error, code %d", o.Code)
		if o.Message != "" {
			text += ": " + chain.Told(o.Verb, o.Message)
		}
		if o.Verb == "DEL" {
			text += ". The record stays. kubelet asks again; CRI-O and podman don't, then it is released from the record"
		}
	}
	if v.Retry {
		return "nothing yet, the delegate is run again; if there is no time for that: " + text
	}
	return text
}

func (t *tool) showExplained(items []explained) error {
	return printItems(t, "Explanation", items, func(w io.Writer) {
		for i, e := range items {
			if i > 0 {
				fmt.Fprintln(w)
			}
			columns(w, e.rows())
		}
	})
}

func (e explained) rows() [][]string {
	var rows [][]string
	add := func(name, text string) { rows = append(rows, []string{name, printable(text)}) }
	if e.Call != nil {
		add("call", fmt.Sprintf("%s  %s", e.Call.Time, e.Call.of(e.Verb)))
	}
	add("outcome", fmt.Sprintf("%s of %s, attempt %d: %s", e.Verb, e.Delegate, e.Attempt, e.Kind))
	rule := e.Rule + " (" + e.Origin + ")"
	if e.Origin == noOrigin {
		rule = "none is asked"
	}
	add("rule", rule)
	add("again", yesNo(e.Retry))
	add("then", e.Then)
	add("told", e.Told)
	if e.Why != "" {
		add("why", e.Why)
	}
	for _, note := range e.Notes {
		add("note", note)
	}
	return rows
}

func yesNo(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}
