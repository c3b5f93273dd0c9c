package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ipam-guard/ipam-guard/pkg/hostlock"
	"github.com/ipam-guard/ipam-guard/pkg/journal"
)

// nodeStatus is what goes on at a node.
type nodeStatus struct {
	Locks   []lockStatus  `json:"locks"`
	Records []recordCount `json:"records"`
	Oldest  *record       `json:"oldestPending,omitempty"`
	Errors  []errorCount  `json:"errors"` // that keep records from being released, the most frequent first
	Calls   []failedCall  `json:"calls"`  // the last ones that failed, by the log, the newest first
	Unseen  []string      `json:"unseen,omitempty"`
}

type lockStatus struct {
	Path    string           `json:"path"`
	Held    bool             `json:"held"`
	PID     int              `json:"pid,omitempty"`
	Dead    bool             `json:"dead,omitempty"`
	Holder  *hostlock.Holder `json:"holder,omitempty"`
	Waiting int              `json:"waiting"`
	Waiters []int            `json:"waiters,omitempty"`
}

// recordCount counts a delegate's records in a folder.
type recordCount struct {
	StateDir   string `json:"stateDir"`
	Delegate   string `json:"delegate"`
	Attached   int    `json:"attached"`
	Adding     int    `json:"adding"`
	Releasing  int    `json:"releasing"`
	Releasable int    `json:"releasable"` // of all states
	Unreadable int    `json:"unreadable"`
	Newer      int    `json:"newer"`
	Busy       int    `json:"busy"`
}

type errorCount struct {
	Delegate string `json:"delegate"`
	Error    string `json:"error"`
	Records  int    `json:"records"`
}

func statusCommand(t *tool) *cobra.Command {
	var o recordOptions
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Locks, records and the last errors of this node",
		Long: `status shows for each lock who holds it, since when, and how many wait; records by
state; the oldest that is still to be released; what keeps records from being
released; and the last calls that failed, by the log. It changes nothing and holds
nobody up.`,
		Example: `  ipam-guardctl status
  ipam-guardctl status --output json
  watch ipam-guardctl status`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return t.status(o) },
	}
	o.flags(cmd)
	return cmd
}

func (t *tool) status(o recordOptions) error {
	var s nodeStatus
	all, err := t.records(o, false)
	s.count(all)
	errs := []error{err}
	var files []string
	for _, set := range o.settings() {
		files = append(files, set.Log.File)
		errs = append(errs, s.addLocks(set.LockDir))
	}
	for _, file := range once(files) {
		calls, err := failedCalls(file)
		s.Calls = append(s.Calls, calls...)
		errs = append(errs, err)
	}
	slices.SortStableFunc(s.Calls, func(a, b failedCall) int { return strings.Compare(b.Time, a.Time) })
	s.Calls = s.Calls[:min(len(s.Calls), shownCalls)]
	err = errors.Join(errs...)
	if err != nil {
		s.Unseen = strings.Split(err.Error(), "\n")
	}
	if shown := t.showStatus(s); shown != nil {
		return shown
	}
	return err
}

func (s *nodeStatus) addLocks(dir string) error {
	if slices.ContainsFunc(s.Locks, func(l lockStatus) bool { return strings.HasPrefix(l.Path, dir+"/") }) {
		return nil // several delegates, one folder
	}
	views, err := hostlock.Look(dir)
	for _, v := range views {
		s.Locks = append(s.Locks, lockStatus{v.Path, v.Held, v.PID, v.Dead, v.Holder, len(v.Waiting), v.Waiting})
	}
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("the locks can't be seen: %w: run it as root", err)
	}
	return err
}

// count counts records; they come the oldest first.
func (s *nodeStatus) count(all []held) {
	errors := map[errorCount]int{}
	for _, h := range all {
		s.countOf(h).add(h)
		if !h.Pending() {
			continue
		}
		if s.Oldest == nil {
			r := h.item()
			s.Oldest = &r
		}
		if h.LastError != "" {
			errors[errorCount{Delegate: h.Delegate, Error: h.LastError}]++
		}
	}
	for e, n := range errors {
		e.Records = n
		s.Errors = append(s.Errors, e)
	}
	slices.SortFunc(s.Errors, func(a, b errorCount) int {
		if a.Records != b.Records {
			return b.Records - a.Records
		}
		return strings.Compare(a.Error, b.Error)
	})
	s.Errors = s.Errors[:min(len(s.Errors), 5)]
}

func (s *nodeStatus) countOf(h held) *recordCount {
	i := slices.IndexFunc(s.Records, func(c recordCount) bool { return c.StateDir == h.dir && c.Delegate == h.Delegate })
	if i < 0 {
		i = len(s.Records)
		s.Records = append(s.Records, recordCount{StateDir: h.dir, Delegate: h.Delegate})
	}
	return &s.Records[i]
}

func (c *recordCount) add(h held) {
	one := func(n *int, is bool) {
		if is {
			*n++
		}
	}
	one(&c.Newer, h.state() == "newer")
	one(&c.Unreadable, h.state() == "unreadable")
	one(&c.Busy, h.Busy)
	one(&c.Releasable, h.Releasable)
	one(&c.Attached, h.State == journal.Attached)
	one(&c.Adding, h.State == journal.Adding)
	one(&c.Releasing, h.State == journal.Releasing)
}

func (t *tool) showStatus(s nodeStatus) error {
	s.Locks, s.Records, s.Errors, s.Calls = orEmptyList(s.Locks), orEmptyList(s.Records), orEmptyList(s.Errors), orEmptyList(s.Calls)
	return printItems(t, "Status", []nodeStatus{s}, func(w io.Writer) {
		s.showLocks(w)
		s.showCounts(w)
		s.showErrors(w)
	})
}

// orEmptyList: JSON has [] for nothing, not null.
func orEmptyList[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func (s nodeStatus) showLocks(w io.Writer) {
	if len(s.Locks) == 0 {
		fmt.Fprintln(w, "no lock files")
		return
	}
	rows := [][]string{{"lock", "held for", "waiting", "by"}}
	for _, l := range s.Locks {
		since, by := "-", "-"
		if l.Held {
			since, by = "?", l.by()
			if l.Holder != nil {
				since = ago(l.Holder.Since)
			}
		}
		rows = append(rows, []string{l.Path, since, strconv.Itoa(l.Waiting), by})
	}
	columns(w, rows)
}

func (l lockStatus) by() string {
	text := "unknown"
	switch h := l.Holder; {
	case h != nil:
		text = fmt.Sprintf("%s of %s (%s, network %s), pid %d", h.Verb, h.Container, h.IfName, h.Network, h.PID)
	case l.PID > 0:
		text = fmt.Sprintf("pid %d", l.PID)
	}
	if l.Dead {
		text += "; that process is gone: what it started still has the lock, who waits kills it"
	}
	return oneLine(text)
}

func (s nodeStatus) showCounts(w io.Writer) {
	fmt.Fprintln(w)
	if len(s.Records) == 0 {
		fmt.Fprintln(w, "no records")
		return
	}
	rows := [][]string{{"records of", "attached", "adding", "releasing", "releasable", "busy", "unreadable", "newer", "in"}}
	for _, c := range s.Records {
		row := []string{orNone(oneLine(c.Delegate))}
		for _, n := range []int{c.Attached, c.Adding, c.Releasing, c.Releasable, c.Busy, c.Unreadable, c.Newer} {
			row = append(row, strconv.Itoa(n))
		}
		rows = append(rows, append(row, c.StateDir))
	}
	columns(w, rows)
	if r := s.Oldest; r != nil {
		made, _ := time.Parse(time.RFC3339, r.Created)
		fmt.Fprintf(w, "\noldest pending: %s, made %s ago, %s; %s\n", oneLine(r.Name), ago(made), r.State, r.Next)
	}
}

func (s nodeStatus) showErrors(w io.Writer) {
	if len(s.Errors) > 0 {
		fmt.Fprintln(w, "\nwhat keeps records from being released:")
	}
	for _, e := range s.Errors {
		fmt.Fprintf(w, "  %s of %s: %s\n", count(e.Records, "record"), e.Delegate, oneLine(e.Error))
	}
	if len(s.Calls) > 0 {
		fmt.Fprintln(w, "\nthe last calls that failed:")
	}
	for _, c := range s.Calls {
		fmt.Fprintf(w, "  %s %s of %s, %s: %s\n", c.Time, c.Verb, c.Container, orNone(c.Delegate), oneLine(c.Error))
	}
	for _, text := range s.Unseen {
		fmt.Fprintf(w, "\nnot seen: %s\n", text)
	}
}
