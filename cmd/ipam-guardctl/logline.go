package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/ipam-guard/ipam-guard/pkg/policy"
)

// logged is a line of the log, as far as it says what failed.
type logged struct {
	Verb     string `json:"verb"`
	Delegate string `json:"delegate"`
	Msg      string `json:"msg"`
	Error    string `json:"error"`
	Verdict  string `json:"verdict"`
	Rule     string `json:"rule"`
	Attempts []struct {
		Verb string      `json:"verb"`
		Kind policy.Kind `json:"kind"`
		Code uint        `json:"code"`
	} `json:"attempts"`
}

// explainLines explains the calls that failed.
func (t *tool) explainLines(o explainOptions, lines io.Reader) ([]explained, error) {
	var items []explained
	scan := bufio.NewScanner(lines)
	scan.Buffer(nil, 1<<20)
	for n := 1; scan.Scan(); n++ {
		if len(bytes.TrimSpace(scan.Bytes())) == 0 {
			continue
		}
		var l logged
		if err := json.Unmarshal(scan.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("line %d is not a line of the guard's log: %w", n, err)
		}
		outcome, failed := l.outcome()
		if !failed {
			continue
		}
		item, err := o.explain(outcome)
		if err != nil {
			return nil, err
		}
		if l.Rule != "" && l.Rule != item.Rule {
			item.Notes = append(item.Notes, fmt.Sprintf("the log says rule %s: the settings differ now, or the log does not have the whole message", l.Rule))
		}
		items = append(items, item)
	}
	return items, scan.Err()
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
