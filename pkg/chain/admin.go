package chain

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap/zapcore"

	"github.com/ipam-guard/ipam-guard/pkg/hostlock"
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
	Wait     time.Duration // how long Release and Forget wait for a record, and Release for the host lock; 0: not at all
	Who, Why string        // for the log; without Who nothing is logged
}

// Held is a record, as an administrator sees it.
type Held struct {
	journal.Record
	NetnsGone  bool
	Releasable bool  // anyone may release it now
	Busy       bool  // another process is at work on it
	Unreadable bool  // or of a newer version: only what its name says is known
	Problem    error // why it is Unreadable; journal.ErrNewer for a newer version's
}

// Pending says whether the record is of something that must be released.
func (h Held) Pending() bool { return !h.Busy && !h.Unreadable && h.State != journal.Attached }

// ErrNotYet says that what the record is of may still be in use.
var ErrNotYet = errors.New("its network namespace is there, or not known to be gone: it may still be in use")

// ErrNoRecord says that there is no record of that key.
var ErrNoRecord = errors.New("there is no record of it")

func (a Admin) journal() *journal.Journal {
	return &journal.Journal{Dir: a.StateDir, Node: journal.Here()}
}

// Records returns all records of the node that can be seen. With Note, it notes
// since when the netns of an attachment is gone, as a call for another attachment
// would: where no calls come any more, nobody else does, and Anyone never may
// release it.
func (a Admin) Records() []Held {
	seen, _ := a.See()
	all := make([]Held, len(seen))
	for i, h := range seen {
		all[i] = *h
	}
	return all
}

// See is Records, and says why they can't be seen. With texts it is about the
// records of containers that begin with one of them, and reads no others.
func (a Admin) See(containers ...string) ([]*Held, error) {
	j := a.journal()
	var one sync.Mutex
	var all []*Held
	add := func(h *Held) {
		one.Lock()
		defer one.Unlock()
		all = append(all, h)
	}
	err := j.Each(
		func(r *journal.Record, busy bool) {
			add(&Held{
				Record: *r, Busy: busy,
				NetnsGone: j.NetnsGone(r), Releasable: !busy && j.Releasable(r, journal.Anyone),
			})
		},
		func(k journal.Key, why error) {
			add(&Held{Record: journal.Record{Key: k}, Unreadable: true, Problem: why})
		}, containers...)
	for _, h := range all {
		if a.Note {
			a.note(j, h)
		}
	}
	return all, err
}

// note writes since when an attachment's netns is gone.
func (a Admin) note(j *journal.Journal, h *Held) {
	noted := h.GoneSince != 0 && h.Boot == j.Boot
	if h.Busy || h.Unreadable || h.State != journal.Attached || h.NetnsGone == noted {
		return
	}
	e := j.Try(h.Key)
	if e == nil {
		return
	}
	defer e.Close()
	since := int64(0)
	if j.NetnsGone(&e.Record) {
		since = journal.Uptime()
	}
	if e.State != journal.Attached {
		return
	}
	if err := e.Update(func(r *journal.Record) { r.GoneSince = since }); err != nil {
		a.Warn(fmt.Sprintf("%s: %v", h.Key, err))
		return
	}
	h.Status = e.Status
}

// Release releases a record as a call for another attachment would: by its own
// configuration, settings merged anew, under the host lock. With force it does so
// whatever lives. The error says why it could not; the record then stays.
func (a Admin) Release(ctx context.Context, k journal.Key, force bool) error {
	op, e, err := a.open(ctx, k)
	if err != nil {
		return err
	}
	defer e.Close()
	by := journal.Anyone
	if force {
		by = journal.ItsOwnDEL
	}
	if !op.mayRelease(&e.Record, by) {
		return ErrNotYet
	}
	why := a.replay(ctx, op, e)
	for _, w := range op.line.Warnings {
		a.Warn(w)
	}
	if why != "" {
		a.log(op, "REPLAY", zapcore.WarnLevel, "not released by hand", why)
		return errors.New(why)
	}
	a.log(op, "REPLAY", zapcore.InfoLevel, "released by hand", "")
	return nil
}

// replay waits for the host lock, which calls for pods may have, and releases the
// record: the deadline of that counts from then.
func (a Admin) replay(ctx context.Context, op *operation, e *journal.Entry) string {
	sub := op.forRecord(&e.Record)
	if sub.lockPath == "" || e.State == journal.Adding && !e.Started || a.Wait <= 0 {
		return op.replay(ctx, e, nil)
	}
	op.lockPath = sub.lockPath
	lock, err := hostlock.Acquire(ctx, time.Now().Add(a.Wait), sub.lockPath, sub.holder(), op.warn)
	if err != nil {
		return err.Error()
	}
	h := &held{lock: lock}
	defer h.release(op)
	op.line.Lock, op.line.LockWait, op.Start = sub.lockPath, lock.Waited(), time.Now()
	return op.replay(ctx, e, h)
}

// Forget gives a record up: what it is of is not released. One that can't be read
// is set aside.
func (a Admin) Forget(ctx context.Context, k journal.Key) error {
	op, e, err := a.open(ctx, k)
	if errors.Is(err, ErrSetAside) {
		a.log(op, "FORGET", zapcore.InfoLevel, "given up by hand, it can't be read and was set aside: its address may stay taken", "")
	}
	if err != nil {
		return err
	}
	defer e.Close()
	if err := e.Remove(); err != nil {
		return err
	}
	a.log(op, "FORGET", zapcore.InfoLevel, "given up by hand ("+string(e.State)+"): its address may stay taken", "")
	return nil
}

// open locks a record, for an operation whose deadline is that of a DEL of its
// own. With ErrSetAside the operation is there, too.
func (a Admin) open(ctx context.Context, k journal.Key) (*operation, *journal.Entry, error) {
	op := &operation{Call: a.Call, verb: "DEL", journal: a.journal()}
	aside := false
	e, _, err := op.journal.Take(ctx, time.Now().Add(a.Wait), k, nil, func(text string) { aside = true; a.Warn(text) })
	op.Start = time.Now()
	op.conf = &netconf{version: withoutCNIVersion, name: k.Network, typ: k.Delegate}
	op.conf.settings, _ = settingsFor(k.Delegate, a.NodeFile, nil)
	op.line = telemetry.Line{Verb: "DEL", Network: k.Network, Container: k.Container, IfName: k.IfName, Delegate: k.Delegate}
	switch {
	case err != nil:
		return nil, nil, err
	case aside:
		return op, nil, ErrSetAside
	case e == nil:
		return nil, nil, ErrNoRecord
	case e.Newer:
		e.Close()
		return nil, nil, fmt.Errorf("its record was %w: use the newer ipam-guardctl", journal.ErrNewer)
	}
	op.conf.settings, _ = settingsFor(k.Delegate, a.NodeFile, e.Guard)
	return op, e, nil
}

// ErrSetAside says that the record could not be read, and is in the folder aside
// now.
var ErrSetAside = errors.New("its record can't be read: it was set aside")

// log writes what an administrator did to a record, whatever level the log has.
func (a Admin) log(op *operation, verb string, level zapcore.Level, msg, problem string) {
	if a.Who == "" {
		return
	}
	l := op.line
	l.Time, l.Total, l.Level, l.Verb, l.Version = time.Now(), time.Since(op.Start), level, verb, a.Version
	l.Msg, l.Error, l.Warnings = msg+", by "+a.Who, problem, nil
	if a.Why != "" {
		l.Msg += ": " + a.Why
	}
	s := op.conf.settings.Log
	telemetry.Log{File: s.File, Level: zapcore.DebugLevel, MaxSize: s.MaxSize, Keep: s.Keep, Stderr: a.Stderr}.Write(l)
}
