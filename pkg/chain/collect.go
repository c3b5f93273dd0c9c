package chain

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"

	"github.com/ipam-guard/ipam-guard/pkg/hostlock"
	"github.com/ipam-guard/ipam-guard/pkg/journal"
	"github.com/ipam-guard/ipam-guard/pkg/telemetry"
)

// Hold is a record that is kept locked while somebody makes sure that nobody
// uses what it is of. Who holds it may release it, and closes it.
type Hold struct {
	admin Admin
	op    *operation
	entry *journal.Entry
	made  bool          // it is ours, of an address that had no record
	facts journal.Facts // of that one
}

// Hold locks a record.
func (a Admin) Hold(ctx context.Context, k journal.Key) (*Hold, error) {
	op, e, err := a.open(ctx, k)
	if err != nil {
		return nil, err
	}
	return &Hold{admin: a, op: op, entry: e}, nil
}

// ErrRecorded says that an address has a record, or another process is at work on
// it.
var ErrRecorded = errors.New("it has a record now: that says what becomes of it")

// Claim takes the key of an address that has no record, so that nobody else does
// anything about it meanwhile. What stands in the record until its end is an ADD
// that never came to its delegate: if this process dies, that is dropped, and
// nothing is released. The facts say what the delegate's DEL needs to know.
func (a Admin) Claim(ctx context.Context, k journal.Key, facts journal.Facts) (*Hold, error) {
	op := &operation{Call: a.Call, verb: "DEL", journal: a.journal()}
	first := &journal.Record{Facts: facts, Status: journal.Status{State: journal.Adding}}
	e, made, err := op.journal.Take(ctx, time.Now(), k, first, a.Warn)
	var busy *journal.BusyError
	switch {
	case errors.As(err, &busy):
		return nil, ErrRecorded
	case err != nil:
		return nil, fmt.Errorf("its key can't be kept from others: %w", err)
	case !made:
		e.Close()
		return nil, ErrRecorded
	}
	op.conf = &netconf{version: withoutCNIVersion, name: k.Network, typ: k.Delegate}
	op.conf.settings, _ = settingsFor(k.Delegate, a.NodeFile, facts.Guard)
	op.line = telemetry.Line{Verb: "DEL", Network: k.Network, Container: k.Container, IfName: k.IfName, Delegate: k.Delegate}
	return &Hold{admin: a, op: op, entry: e, made: true, facts: facts}, nil
}

// Releasable says whether anyone may release it, as things are now.
func (h *Hold) Releasable() bool {
	return h.made || h.op.journal.Releasable(&h.entry.Record, journal.Anyone)
}

// Release runs the delegate's DEL under the host lock, and ends the record. The
// error says why it could not; a record that was there before stays then.
func (h *Hold) Release(ctx context.Context) error {
	if !h.Releasable() {
		return ErrNotYet
	}
	h.op.Start = time.Now() // what went before was no waiting of its own
	var why string
	if h.made {
		why = h.del(ctx)
	} else {
		why = h.admin.replay(ctx, h.op, h.entry)
	}
	for _, w := range h.op.line.Warnings {
		h.admin.Warn(w)
	}
	if why != "" {
		h.admin.log(h.op, "REPLAY", zapcore.WarnLevel, "not released", why)
		return errors.New(why)
	}
	h.admin.log(h.op, "REPLAY", zapcore.InfoLevel, "released", "")
	return nil
}

// del runs the DEL of an address that had no record. It leaves none: what its
// delegate could not release is found again where it was found.
func (h *Hold) del(ctx context.Context) string {
	r := journal.Record{Key: h.entry.Key, Facts: h.facts}
	sub := h.op.forRecord(&r)
	lock := &held{}
	if sub.lockPath != "" {
		l, err := hostlock.Acquire(ctx, time.Now().Add(h.admin.Wait), sub.lockPath, sub.holder(), h.op.warn)
		if err != nil {
			return err.Error()
		}
		lock.lock = l
	}
	defer lock.release(sub)
	sub.Start = time.Now()
	res := sub.runIfThere(ctx, "DEL", lock)
	h.op.line.Warnings = append(h.op.line.Warnings, sub.line.Warnings...)
	if sub.released(res) {
		return ""
	}
	return res.Message
}

// Close lets others have the record. One that Claim made is gone then.
func (h *Hold) Close() {
	if h.made {
		_ = h.entry.Remove() // one that stays says of itself that it needs no release
	}
	h.entry.Close()
}

// Tidy notes which folders of records are there, and returns what removes all
// others that are empty: where no guard is, Claim leaves none behind.
func (a Admin) Tidy() (remove func()) {
	before := a.folders()
	return func() {
		for _, dir := range slices.Backward(a.folders()) {
			if !slices.Contains(before, dir) {
				_ = unix.Rmdir(dir) // unless it isn't empty
			}
		}
	}
}

// folders are those above the records and in which they are, the outer ones first.
func (a Admin) folders() (all []string) {
	for dir := a.StateDir; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); err == nil {
			all = append(all, dir)
		}
	}
	slices.Reverse(all)
	for _, pattern := range []string{"records", "queue", "queue/*"} {
		found, _ := filepath.Glob(filepath.Join(a.StateDir, pattern))
		all = append(all, found...)
	}
	return all
}
