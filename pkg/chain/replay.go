package chain

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ipam-guard/ipam-guard/pkg/conflist"
	"github.com/ipam-guard/ipam-guard/pkg/hostlock"
	"github.com/ipam-guard/ipam-guard/pkg/journal"
)

// looked is how many records that are due a call may open to find one that it
// may release.
const looked = 16

// replayDue releases, after a DEL of its own went well, at most one record of
// the same delegate type that is due, and looks at one attachment. Nothing that
// happens here changes the answer to the caller.
func (op *operation) replayDue(ctx context.Context) {
	defer func() {
		if r := recover(); r != nil {
			op.warn(fmt.Sprintf("internal error in a replay: %v", r))
		}
	}()
	if op.journal == nil {
		return
	}
	due, attached := op.journal.Queue(op.conf.typ)
	replayed := op.replayOneOf(ctx, due)
	op.lookAt(ctx, attached, !replayed)
}

// replayOneOf goes through those that are due until it has tried to release
// one. Those whose netns lives are not to be released yet; where they are many,
// they let others pass.
func (op *operation) replayOneOf(ctx context.Context, due []journal.Mark) bool {
	var waiting []journal.Mark
	for _, m := range due[:min(len(due), 2*looked)] {
		e := op.journal.Open(m, op.warn)
		if e == nil {
			continue
		}
		if op.mayRelease(&e.Record, journal.Anyone) {
			op.replay(ctx, e, nil)
			e.Close()
			return true
		}
		e.Close()
		if waiting = append(waiting, m); len(waiting) == looked {
			op.postpone(waiting)
			break
		}
	}
	return false
}

// postpone makes those whose turn it isn't due a little later.
func (op *operation) postpone(waiting []journal.Mark) {
	for _, m := range waiting {
		if e := op.journal.Open(m, op.warn); e != nil {
			_ = e.Update(func(r *journal.Record) { r.Due = journal.Uptime() + 5000 })
			e.Close()
		}
	}
}

// lookAt notes since when the netns of one attachment is gone, and releases it
// if that is so for long and this call may still release one.
func (op *operation) lookAt(ctx context.Context, attached []journal.Mark, release bool) {
	m, ok := op.journal.Next(attached)
	if !ok {
		return
	}
	e := op.journal.Open(m, op.warn)
	if e == nil {
		return
	}
	defer e.Close()
	if e.State != journal.Attached {
		return
	}
	switch gone := op.journal.NetnsGone(&e.Record); {
	case op.journal.Releasable(&e.Record, journal.Anyone):
		if release && op.mayRelease(&e.Record, journal.Anyone) {
			op.replay(ctx, e, nil)
		}
	case gone && (e.GoneSince == 0 || e.Boot != op.journal.Boot):
		_ = e.Update(func(r *journal.Record) { r.GoneSince = journal.Uptime() })
	case !gone && e.GoneSince != 0:
		_ = e.Update(func(r *journal.Record) { r.GoneSince = 0 })
	}
}

// replay releases a record and ends it. It returns why it could not, "" if it
// could.
func (op *operation) replay(ctx context.Context, e *journal.Entry, h *held) string {
	if why := op.releaseRecord(ctx, e, h); why != "" {
		return why
	}
	if err := e.Remove(); err != nil {
		return err.Error()
	}
	return ""
}

// releaseRecord runs the DEL of a record: nothing comes from the caller but
// what is left of its deadline. h is the host lock if it is held already. A
// record whose delegate never ran needs none.
func (op *operation) releaseRecord(ctx context.Context, e *journal.Entry, h *held) string {
	if e.State == journal.Adding && !e.Started {
		return ""
	}
	sub := op.forRecord(&e.Record)
	sub.entry, sub.ends = e, op.fits(0)
	if time.Since(op.Start)+sub.conf.settings.need("DEL") > op.conf.settings.Deadline.Of(op.verb) {
		return "no time left"
	}
	if h == nil || sub.lockPath != op.lockPath {
		own, err := sub.tryLock()
		if err != nil {
			return err.Error() // somebody is at work: not this record's fault
		}
		defer own.release(sub)
		h = own
	}
	r := sub.runIfThere(ctx, "DEL", h)
	op.line.Replays = append(op.line.Replays, sub.attachment()+": "+string(r.Kind))
	op.line.Warnings = append(op.line.Warnings, sub.line.Warnings...)
	if sub.released(r) {
		return ""
	}
	if !r.interrupted {
		op.noteFailure(e, r.Message)
	}
	return r.Message
}

// noteFailure writes when to try again.
func (op *operation) noteFailure(e *journal.Entry, why string) {
	err := e.Update(func(r *journal.Record) {
		if r.Boot != op.journal.Boot {
			r.Tries = 0
		}
		if r.State == journal.Attached { // its netns is gone for long, nobody will ask for it
			r.State, r.Owed = journal.Releasing, journal.Netns
		}
		r.Tries++
		r.LastError, r.Due = why, journal.Backoff(r.Tries)
	})
	if err != nil {
		op.warn(fmt.Sprintf("the record of %s could not be brought up to date: %v", e.Key, err))
	}
}

// tryLock takes the host lock if nobody has it.
func (op *operation) tryLock() (*held, error) {
	if op.lockPath == "" {
		return &held{}, nil
	}
	lock, err := hostlock.TryAcquire(op.lockPath, op.holder(), op.warn)
	if err != nil {
		return nil, err
	}
	return &held{lock: lock}, nil
}

// forRecord is the DEL of a record, as an operation of its own: every CNI_
// variable comes from the record, CNI_NETNS is empty, the settings are merged
// anew, so that what the administrator corrected counts.
func (op *operation) forRecord(r *journal.Record) *operation {
	sub := &operation{Call: op.Call, verb: "DEL", container: r.Container, ifname: r.IfName, path: r.Path, journal: op.journal}
	sub.conf = &netconf{version: op.conf.version, name: r.Network, typ: r.Delegate}
	settings, problems := settingsFor(r.Delegate, op.NodeFile, r.Guard)
	for _, p := range problems {
		sub.warn(p.String())
	}
	sub.conf.settings = settings
	sub.netconf = withPrevResult(r.Netconf, r.Result)
	sub.Env = recordedEnv(op.Env, r)
	sub.lockPath = sub.chooseLock()
	sub.findRecorded(r)
	sub.line.Verb = "DEL"
	return sub
}

// recordedEnv replaces every CNI_ variable of the caller's environment.
func recordedEnv(env []string, r *journal.Record) []string {
	var out []string
	for _, kv := range env {
		if !strings.HasPrefix(kv, "CNI_") && !strings.HasPrefix(kv, "TRACEPARENT=") {
			out = append(out, kv)
		}
	}
	return append(out, "CNI_COMMAND=DEL", "CNI_CONTAINERID="+r.Container, "CNI_IFNAME="+r.IfName,
		"CNI_NETNS=", "CNI_ARGS="+r.Args, "CNI_PATH="+r.Path)
}

// withPrevResult puts what the ADD printed into its configuration.
func withPrevResult(netconf, result []byte) []byte {
	o, err := conflist.Parse(netconf)
	if err != nil || len(result) == 0 {
		return netconf
	}
	over, err := conflist.Parse([]byte(`{"prevResult":` + string(result) + `}`))
	if err != nil {
		return netconf
	}
	return conflist.Splice(netconf, 0, conflist.Edit{Span: o.Span, Text: o.Overlay(over, over.Members)})
}

// pending says whether releases are due or under way in the operation's
// network: then an exhausted pool may have room soon.
func (op *operation) pending() bool {
	if op.journal == nil {
		return false
	}
	found := false
	op.journal.Pending(op.conf.typ, op.conf.name, func(m journal.Mark) bool {
		found = !op.journal.Leads(m, op.key())
		return !found
	})
	return found
}

// letPass waits for a release that is under way in the operation's network, if
// there is one: the host lock, given back, goes to no one in particular. It
// returns false if another ADD would not fit the deadline any more.
func (op *operation) letPass(ctx context.Context) bool {
	op.journal.Pending(op.conf.typ, op.conf.name, func(m journal.Mark) bool {
		return op.journal.Leads(m, op.key()) || !op.journal.Await(ctx, op.fits(op.conf.settings.need("ADD")), m)
	})
	return op.pause(ctx, 0)
}

// makeRoom releases what is due in the operation's network, its backoff set
// aside, while the ADD's need still fits. The host lock is held.
func (op *operation) makeRoom(ctx context.Context, h *held) {
	op.journal.Pending(op.conf.typ, op.conf.name, func(m journal.Mark) bool {
		s := &op.conf.settings
		if ctx.Err() != nil || time.Since(op.Start)+s.need("DEL")+s.need("ADD") > s.Deadline.Add {
			return false
		}
		if op.journal.Leads(m, op.key()) {
			return true
		}
		if e := op.journal.Open(m, op.warn); e != nil {
			if op.mayRelease(&e.Record, journal.Anyone) {
				op.replay(ctx, e, h)
			}
			e.Close()
		}
		return true
	})
}
