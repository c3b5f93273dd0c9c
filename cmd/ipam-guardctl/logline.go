package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/ipam-guard/ipam-guard/pkg/policy"
)

// logged is a line of the log, as far as it says what failed.
type logged struct {
	Time      string `json:"ts"`
	Level     string `json:"level"`
	Verb      string `json:"verb"`
	Network   string `json:"network"`
	Container string `json:"container"`
	IfName    string `json:"ifname"`
	Delegate  string `json:"delegate"`
	Msg       string `json:"msg"`
	Error     string `json:"error"`
	Verdict   string `json:"verdict"`
	Rule      string `json:"rule"`
	Attempts  []struct {
		Verb string      `json:"verb"`
		Kind policy.Kind `json:"kind"`
		Code uint        `json:"code"`
	} `json:"attempts"`
}

// loggedCall says which line of the log was explained, and what that line says of the
// answer.
type loggedCall struct {
	Time      string `json:"time"`
	Network   string `json:"network"`
	Container string `json:"container"`
	IfName    string `json:"ifname"`
	Verdict   string `json:"verdict"`
	Rule      string `json:"rule"`
}

// of names the call as the guard's messages do.
func (c loggedCall) of(verb string) string {
	return fmt.Sprintf("%s of container %s (%s, network %s)", verb, orNone(c.Container), orNone(c.IfName), orNone(c.Network))
}

// Why a line is not explained.
var (
	errNotLogged = errors.New("not a line of the guard's log")
	errWell      = errors.New("all went well in that call")
	errNoRun     = errors.New("failed, and not in a run of its own delegate")
)

// explainLines explains the calls that failed, and tells the person of lines that
// are not explained although something is wrong with them.
func (t *tool) explainLines(o explainOptions, lines io.Reader) ([]explained, error) {
	var items []explained
	var seen, failed int
	var bad error
	scan := bufio.NewScanner(lines)
	scan.Buffer(nil, 1<<20)
	for n := 1; scan.Scan(); n++ {
		if len(bytes.TrimSpace(scan.Bytes())) == 0 {
			continue
		}
		item, err := o.explainLine(scan.Bytes())
		err = named(fmt.Sprintf("line %d", n), err)
		seen++
		switch {
		case err == nil:
			items = append(items, item)
		case errors.Is(err, errNoRun):
			t.warn("%s", printable(err.Error()))
			failed++
		case errors.Is(err, errNotLogged):
			t.warn("%s", printable(err.Error())) // a full disk leaves halves of lines
			seen, bad = seen-1, err
		case !errors.Is(err, errWell):
			return nil, err
		}
	}
	if err := scan.Err(); err != nil {
		return nil, err
	}
	if seen == 0 && bad != nil {
		return nil, errNotLogged
	}
	if len(items)+failed == 0 {
		t.warn("no failed call in %s", count(seen, "line"))
	}
	return items, nil
}

// explainLine explains the call of a line, if a run of its delegate failed.
func (o explainOptions) explainLine(text []byte) (explained, error) {
	var l logged
	if err := json.Unmarshal(text, &l); err != nil {
		return explained{}, fmt.Errorf("%w: %w", errNotLogged, err)
	}
	outcome, failed := l.outcome()
	c := loggedCall{l.Time, l.Network, l.Container, l.IfName, l.Verdict, l.Rule}
	switch {
	case l.Verb == "":
		return explained{}, fmt.Errorf("%w: it has no verb", errNotLogged)
	case !failed && l.Level == "error":
		return explained{}, fmt.Errorf("%s  %s: %w: %s", l.Time, c.of(l.Verb), errNoRun, l.Msg)
	case !failed:
		return explained{}, errWell
	}
	e, err := o.explain(outcome)
	e.Call = &c
	if note := l.differs(e); note != "" {
		e.Notes = append(e.Notes, note)
	}
	return e, err
}

// differs says what the call went by, where that is not what it would go by now.
func (l logged) differs(e explained) string {
	was, now := said(l.Verdict, l.Rule), said(e.Then, e.Rule)
	switch {
	case l.Verdict == "bypass" || l.Verdict == "below":
		return "the log says " + l.Verdict + ": no rule was asked, the caller got what the delegate said"
	case l.Rule == "interrupted":
		return "the log says fail, interrupted: the guard was told to stop, and no rule was asked"
	case was == "" || was == now || l.Verdict == "" && l.Rule == e.Rule:
		return ""
	case l.Rule == e.Rule && strings.Contains(l.Msg, "that can't be promised"):
		return fmt.Sprintf("the log says %s, since the release could not be promised; by the settings of now: %s", was, now)
	}
	return fmt.Sprintf("the log says %s; by the settings of now: %s. The settings have changed since, or the rule went by "+
		"what is not in the log: stderr, and the end of a long message", was, now)
}

func said(verdict, rule string) string {
	if rule == "" {
		return verdict
	}
	return strings.TrimSpace(verdict + " by rule " + rule)
}

// outcome is the one that the call ended with: its last run that was of its own
// verb. A call that failed before any run has none.
func (l logged) outcome() (policy.Outcome, bool) {
	o := policy.Outcome{Verb: l.Verb, Delegate: l.Delegate, Message: l.Error}
	if l.Error == "" {
		o.Message = l.Msg
	}
	for _, a := range l.Attempts {
		if a.Verb == "" || a.Verb == l.Verb {
			o.Kind, o.Code = a.Kind, a.Code
			o.Attempt++
		}
	}
	switch {
	case l.Rule == "lock" && o.Kind != policy.Lock: // the queue has no run of its own
		o.Kind, o.Code = policy.Lock, 11
		o.Attempt++
	case o.Attempt == 0 || o.Kind == policy.OK:
		return o, false
	}
	return o, true
}
