package chain

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/ipam-guard/ipam-guard/pkg/conflist"
	"github.com/ipam-guard/ipam-guard/pkg/delegate"
	"github.com/ipam-guard/ipam-guard/pkg/journal"
)

func (op *operation) key() journal.Key {
	return journal.Key{Network: op.conf.name, Container: op.container, IfName: op.ifname, Delegate: op.conf.typ}
}

// locate finds out which boot and mount namespace this is: only who writes or
// judges records needs to know.
func (op *operation) locate() { op.journal.Node = journal.Here() }

// facts are what a later release of this attachment needs to know.
func (op *operation) facts() journal.Facts {
	f := journal.Facts{
		Netconf: op.netconf, Guard: op.conf.guard(),
		Args: op.env("CNI_ARGS"), Path: op.path, Binary: op.binary,
		Netns: op.journal.Place(op.netns),
	}
	if op.verb == "ADD" && f.Netns.Inode == 0 {
		f.Netns.MntNS = 0 // not to be seen from here, so never seen to be gone
	}
	return f
}

// take locks a key's record, or makes first. What it returns is nil, or why the
// operation can't have the record: somebody else is at work on that attachment.
func (op *operation) take(ctx context.Context, k journal.Key, first *journal.Record) (made bool, busy *Error, err error) {
	e, made, err := op.journal.Take(ctx, op.fits(op.conf.settings.need(op.verb)), k, first, op.warn)
	var taken *journal.BusyError
	if errors.As(err, &taken) {
		return false, newError(codeTryAgain, fmt.Sprintf("%s of %s: %v", op.verb, op.attachment(), err),
			fmt.Sprintf("the delegate %s was not run", op.conf.typ)), nil
	}
	op.entry = e
	if e != nil && e.Newer {
		op.warn(fmt.Sprintf("the record of %s was written by a newer version: left alone", k))
	}
	return made, nil, err
}

// recordedDEL goes over from what stdin says to what the record says: the
// delegate gets the configuration of its ADD, with what the runtime knows now.
// A second configuration is left for when that one fails.
func (op *operation) recordedDEL(r *journal.Record) {
	current, same := op.netconf, r.Network == op.conf.name && r.Delegate == op.conf.typ
	if !same || op.unreadable != nil {
		op.adopt(r)
	}
	op.netconf = withRuntimeKeys(r.Netconf, op.conf.top)
	if same && op.unreadable == nil {
		op.other = current
	}
	if op.missing != nil {
		op.findRecorded(r)
	}
	if same && len(op.conf.problems) > 0 { // what is bad is replaced by the record's
		op.conf.settings, _ = settingsFor(r.Delegate, op.NodeFile, r.Guard, op.conf.guard())
		op.lockPath = op.chooseLock()
	}
}

// adopt takes name, delegate and settings from a record: stdin names others, or
// can't be read.
func (op *operation) adopt(r *journal.Record) {
	settings, problems := settingsFor(r.Delegate, op.NodeFile, r.Guard)
	for _, p := range problems {
		op.warn(p.String())
	}
	state := op.conf.settings.StateDir
	op.conf.name, op.conf.typ, op.conf.settings = r.Network, r.Delegate, settings
	op.conf.settings.StateDir = state
	op.line.Network, op.line.Delegate = r.Network, r.Delegate
	op.lockPath = op.chooseLock()
	op.findRecorded(r)
}

// findRecorded finds the delegate of a record: the file that ran, else one by
// its name in the CNI_PATH of that time, else beside the guard.
func (op *operation) findRecorded(r *journal.Record) {
	if op.binary, op.missing = delegate.Find(filepath.Base(r.Binary), filepath.Dir(r.Binary)); op.missing == nil && r.Binary != "" {
		return
	}
	if op.binary, op.missing = op.findBehind(r.Delegate, r.Path); op.missing == nil {
		return
	}
	if self, err := op.Self(); err == nil {
		op.binary, op.missing = op.findBehind(r.Delegate, filepath.Dir(self))
	}
}

// runtimeKeys are the members of a netconf that a runtime sets anew for each
// call.
var runtimeKeys = []string{"prevResult", "runtimeConfig", "args", "cniVersion"}

// withRuntimeKeys lays what the runtime says now over a recorded configuration.
func withRuntimeKeys(recorded []byte, now conflist.Object) []byte {
	o, err := conflist.Parse(recorded)
	if err != nil {
		return recorded
	}
	var members []conflist.Member
	for _, key := range runtimeKeys {
		if m, ok := now.Find(key); ok {
			members = append(members, m)
		}
	}
	return conflist.Splice(recorded, 0, conflist.Edit{Span: o.Span, Text: o.Overlay(now, members)})
}

// update changes the operation's record, if it has one.
func (op *operation) update(change func(*journal.Record)) error {
	if op.entry == nil {
		return nil
	}
	return op.entry.Update(change)
}

// forget ends the operation's record.
func (op *operation) forget() {
	if op.entry == nil {
		return
	}
	if err := op.entry.Remove(); err != nil {
		op.warn(fmt.Sprintf("released, but the record stays: %v", err))
	}
}

// leave lets others have the record.
func (op *operation) leave() {
	if op.entry != nil {
		op.entry.Close()
		op.entry = nil
	}
}

// keep notes in the record why its address could not be released yet.
func (op *operation) keep(owed journal.Owed, why string) {
	err := op.update(func(r *journal.Record) {
		if r.Owed != journal.Now {
			r.Owed = owed
		}
		r.State, r.LastError, r.Due = journal.Releasing, why, journal.Uptime()
	})
	if err != nil {
		op.warn(fmt.Sprintf("the record could not be brought up to date: %v", err))
	}
}

// promise makes the record durable, so that the runtime can be told success.
func (op *operation) promise(why string) error {
	switch {
	case op.entry == nil:
		return fmt.Errorf("there is no record: %w", op.unrecorded)
	case op.entry.Newer:
		return errors.New("its record belongs to a newer version")
	}
	if err := op.journal.Lasting(); err != nil {
		return err
	}
	before := op.entry.Status
	err := op.update(func(r *journal.Record) {
		r.State, r.Owed, r.LastError, r.Due = journal.Releasing, journal.Now, why, journal.Uptime()
	})
	if err == nil {
		err = op.entry.Sync()
	}
	if err != nil {
		_ = op.update(func(r *journal.Record) { r.Owed = before.Owed }) // not promised after all
	}
	return err
}
