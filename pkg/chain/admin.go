package chain

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ipam-guard/ipam-guard/pkg/journal"
	"github.com/ipam-guard/ipam-guard/pkg/telemetry"
)

// Admin looks at the records of a node, and releases by them, for the
// administrator.
type Admin struct {
	Call            // Env, Stderr, NodeFile, Random, Version and Self are used
	StateDir string // the records
	Note     bool   // Records notes since when a netns is gone, see there
	Warn     func(string)
}

// Held is a record, as an administrator sees it.
type Held struct {
	journal.Key
	journal.Status
	Created    string
	Netns      journal.Place
	NetnsGone  bool
	Releasable bool // anyone may release it now
	Busy       bool // another process is at work on it: only its key is known
	Unreadable bool // or of a newer version: only what its name says is known
}

// Pending says whether the record is of something that must be released.
func (h Held) Pending() bool { return !h.Busy && !h.Unreadable && h.State != journal.Attached }

// ErrNotYet says that what the record is of may still be in use.
var ErrNotYet = errors.New("its network namespace is there, or not known to be gone: it may still be in use")

// ErrNoRecord says that there is no record of that key, or another process has it.
var ErrNoRecord = errors.New("there is no record of it, or another process is at work on it")

func (a Admin) journal() *journal.Journal {
	return &journal.Journal{Dir: a.StateDir, Node: journal.Here()}
}

// Records returns all records of the node. With Note, it notes since when the
// netns of an attachment is gone, as a call for another attachment would: where
// no calls come any more, nobody else does, and Anyone never may release it.
func (a Admin) Records() []Held {
	j := a.journal()
	var all []Held
	j.Walk("", "",
		func(k journal.Key) { all = append(all, a.look(j, k)) },
		func(k journal.Key) { all = append(all, Held{Key: k, Unreadable: true}) })
	return all
}

func (a Admin) look(j *journal.Journal, k journal.Key) Held {
	e := j.Try(k)
	if e == nil {
		return Held{Key: k, Busy: true}
	}
	defer e.Close()
	gone := j.NetnsGone(&e.Record)
	if a.Note && e.State == journal.Attached && gone && (e.GoneSince == 0 || e.Boot != j.Boot) {
		if err := e.Update(func(r *journal.Record) { r.GoneSince = journal.Uptime() }); err != nil {
			a.Warn(fmt.Sprintf("%s: %v", k, err))
		}
	}
	return Held{
		Key: k, Status: e.Status, Created: e.Created, Netns: e.Netns,
		NetnsGone: gone, Releasable: j.Releasable(&e.Record, journal.Anyone),
	}
}

// Release releases a record as a call for another attachment would: by its own
// configuration, settings merged anew, under the host lock if that is free. With
// force it does so whatever lives. The error says why it could not; the record
// then stays.
func (a Admin) Release(ctx context.Context, k journal.Key, force bool) error {
	op, e, err := a.open(k)
	if err != nil {
		return err
	}
	defer e.Close()
	by := journal.Anyone
	if force {
		by = journal.ItsOwnDEL
	}
	if !op.journal.Releasable(&e.Record, by) {
		return ErrNotYet
	}
	why := op.replay(ctx, e, nil)
	for _, w := range op.line.Warnings {
		a.Warn(w)
	}
	if why != "" {
		return errors.New(why)
	}
	return nil
}

// Forget gives a record up: what it is of is not released.
func (a Admin) Forget(k journal.Key) error {
	_, e, err := a.open(k)
	if err != nil {
		return err
	}
	defer e.Close()
	return e.Remove()
}

// open locks a record, for an operation whose deadline is that of a DEL of its
// own.
func (a Admin) open(k journal.Key) (*operation, *journal.Entry, error) {
	op := &operation{Call: a.Call, verb: "DEL", journal: a.journal()}
	op.Start = time.Now()
	e := op.journal.Try(k)
	if e == nil {
		return nil, nil, ErrNoRecord
	}
	op.conf = &netconf{version: withoutCNIVersion, name: k.Network, typ: k.Delegate}
	op.conf.settings, _ = settingsFor(k.Delegate, a.NodeFile, e.Guard)
	op.line = telemetry.Line{Verb: "DEL"}
	return op, e, nil
}
