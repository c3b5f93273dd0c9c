package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
)

// line is what one invocation of the guard left in its log, as far as it is
// shown here.
type line struct {
	Verb      string `json:"verb"`
	Container string `json:"container"`
	LockWait  int64  `json:"lock_wait_ms"`
	Attempts  []struct {
		Kind string `json:"kind"`
		Took int64  `json:"ms"`
	} `json:"attempts"`
	Verdict string `json:"verdict"`
	Rule    string `json:"rule"`
}

// lastLines reads the log and returns each container's last line for a verb.
func (n *node) lastLines(verb string) (map[string]line, error) {
	text, err := os.ReadFile(n.logFile())
	if err != nil {
		return nil, fmt.Errorf("the guard's log: %w", err)
	}
	lines := map[string]line{}
	for entry := range bytes.Lines(text) {
		var l line
		if err := json.Unmarshal(entry, &l); err != nil {
			return nil, fmt.Errorf("the guard's log: %w in %q", err, entry)
		}
		if l.Verb == verb {
			lines[l.Container] = l
		}
	}
	return lines, nil
}

// attempts tells how each run of the delegate ended, and after how long.
func (l line) attempts() string {
	var texts []string
	for _, a := range l.Attempts {
		texts = append(texts, fmt.Sprintf("%s %s", a.Kind, millis(a.Took)))
	}
	if len(texts) == 0 {
		return "not run"
	}
	return strings.Join(texts, ", ")
}

// policy tells which rule decided, and how.
func (l line) policy() string {
	if l.Rule == "" {
		return l.Verdict
	}
	return l.Rule + " -> " + l.Verdict
}

func millis(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }
