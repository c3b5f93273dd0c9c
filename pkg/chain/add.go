package chain

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ipam-guard/ipam-guard/pkg/delegate"
	"github.com/ipam-guard/ipam-guard/pkg/journal"
	"github.com/ipam-guard/ipam-guard/pkg/policy"
)

// add runs the delegate's ADD, again if the administrator asked for that and
// the failed one left nothing behind.
func (op *operation) add(ctx context.Context) answer {
	if err := op.intend(ctx); err != nil {
		return failure(err)
	}
	p := op.conf.settings.policyFor("ADD")
	room := false // releases were waited for
	for n := 1; ; n++ {
		r, left := op.addOnce(ctx, n, room)
		if r.err == nil {
			op.line.Verdict = "ok"
			return answer{out: r.out}
		}
		v := p.Decide(r.Outcome)
		switch {
		case left == nothing && v.Rule == "exhausted" && !room && op.pending() && op.letPass(ctx):
			room = true
			continue
		case left == nothing && v.Retry && op.pause(ctx, p.Delay(n, op.Random())):
			continue
		case left == nothing:
			op.forget()
		}
		op.line.Verdict, op.line.Rule = string(policy.Fail), v.Rule
		return failure(r.err)
	}
}

// before says what an ADD found of its key.
type before int

const (
	fresh    before = iota // nothing, or an ADD that never got to its delegate
	stale                  // what has to be released first
	repeated               // an attachment that lives: nothing of it may be lost
	foreign                // a newer version's record, or none can be written
)

// left says what a failed ADD leaves.
type left int

const (
	nothing   left = iota // and its record can go
	something             // its record says what
)

// intend writes the record of an ADD, before anyone waits for the host lock.
func (op *operation) intend(ctx context.Context) *Error {
	op.locate()
	made, busy, err := op.take(ctx, op.key(), &journal.Record{Facts: op.facts(), Status: journal.Status{State: journal.Adding}})
	switch {
	case busy != nil:
		return busy
	case err != nil:
		op.before = foreign
		return op.unrecordedADD(err)
	case op.entry.Newer:
		op.before = foreign
	case made, op.entry.State == journal.Adding && !op.entry.Started:
		op.before = fresh
	case op.entry.State != journal.Attached || op.journal.NetnsGone(&op.entry.Record):
		op.before = stale
	default:
		op.before = repeated
	}
	return nil
}

// unrecordedADD says what becomes of an ADD whose record can't be written: one
// that is there already and can't be changed must not be gone past.
func (op *operation) unrecordedADD(err error) *Error {
	what := fmt.Sprintf("ADD of %s: it can't be recorded: %v", op.attachment(), err)
	if op.journal.Has(op.key()) {
		return newError(codeTryAgain, what, "its record is there and can't be changed; the delegate was not run")
	}
	if op.conf.settings.Records == "fail" {
		return newError(codeIO, what, "the delegate was not run; see records.onUnavailable")
	}
	op.warn(what + "; going on, as records.onUnavailable says")
	op.unrecorded = err
	return nil
}

// addOnce runs one ADD and, if it failed, rolls it back under the same lock:
// between the two, nobody sees what it allocated. room: due releases come first.
func (op *operation) addOnce(ctx context.Context, n int, room bool) (result, left) {
	if op.missing != nil {
		return op.attempt(ctx, "ADD", n), op.untouched()
	}
	var first time.Duration
	if op.before == stale {
		first = op.conf.settings.need("DEL")
	}
	h, refused := op.acquire(ctx, "ADD", first)
	if refused != nil {
		return *refused, op.untouched()
	}
	defer h.release(op)
	if room {
		op.makeRoom(ctx, h)
	}
	if err := op.begin(ctx, h); err != nil {
		return op.refused("ADD", n, err), op.untouched()
	}
	r := op.run(ctx, "ADD", n, h)
	if r.err == nil {
		return op.commit(ctx, r, h)
	}
	return op.afterFailedADD(ctx, r, h)
}

// untouched: the delegate was not run. What was there before stays.
func (op *operation) untouched() left {
	if op.before == fresh {
		return nothing
	}
	return something
}

// begin releases what has to be released first, and notes that the delegate is
// about to be started.
func (op *operation) begin(ctx context.Context, h *held) *Error {
	if op.before == stale {
		if err := op.releaseFirst(ctx, h); err != nil {
			return err
		}
		op.before = fresh
	}
	if op.before != fresh {
		return nil
	}
	err := op.update(func(r *journal.Record) {
		r.Facts, r.Result = op.facts(), nil
		r.Status = journal.Status{State: journal.Adding, Started: true, Boot: r.Boot, Due: r.Due, Mark: r.Mark}
	})
	if err != nil {
		return newError(codeIO, fmt.Sprintf("ADD of %s: it can't be recorded: %v", op.attachment(), err), "the delegate was not run")
	}
	return nil
}

// releaseFirst releases what an earlier ADD of this key left, by the
// configuration of that time.
func (op *operation) releaseFirst(ctx context.Context, h *held) *Error {
	why := op.releaseRecord(ctx, op.entry, h)
	if why == "" {
		return nil
	}
	return newError(codeTryAgain,
		fmt.Sprintf("ADD of %s: what an earlier attachment of this name still holds could not be released: %s", op.attachment(), why),
		"the delegate's ADD was not run; mend what keeps the release from working, or give the address up on purpose with ipam-guardctl forget")
}

// commit writes that the attachment lives, before anyone is told.
func (op *operation) commit(ctx context.Context, r result, h *held) (result, left) {
	err := op.update(func(rec *journal.Record) {
		rec.Facts, rec.Result = op.facts(), r.out
		rec.Status = journal.Status{State: journal.Attached, Started: true, Mark: rec.Mark}
	})
	if err == nil {
		return r, something
	}
	e := newError(codeIO, fmt.Sprintf("ADD of %s: the delegate gave an address, but it can't be recorded: %v", op.attachment(), err), "")
	r.err, r.Kind, r.Code, r.Message = e, policy.Error, e.Code, e.Msg
	if op.before == repeated {
		return r, something
	}
	return op.rollBack(ctx, r, h)
}

// afterFailedADD rolls a failed ADD back, unless that would free what lives.
func (op *operation) afterFailedADD(ctx context.Context, r result, h *held) (result, left) {
	switch {
	case op.before == repeated: // what it had before, it still has
		return r, something
	case !r.started:
		return r, nothing
	case r.Kind == policy.Error && delegate.StillHolds(r.Message):
		// What was ours of this key is released by now: this isn't.
		return r, nothing
	case r.interrupted: // no time is left to us
		r.err.Details = joined(r.err.Details, "what it allocated may be left: call DEL; or it is released later, from its record")
		return r, something
	case r.alive:
		r.err.Details = joined(r.err.Details, "the delegate could not be killed and goes on; it is released later, from its record")
		return r, something
	}
	return op.rollBack(ctx, r, h)
}

// rollBack runs a DEL after a failed ADD. The ADD's own error stays what the
// caller gets; that the rollback failed too is added to its details.
func (op *operation) rollBack(ctx context.Context, add result, h *held) (result, left) {
	del := op.run(ctx, "DEL", 1, h)
	if op.released(del) {
		return add, nothing
	}
	note := fmt.Sprintf("the rollback of %s failed too: %s; %s", op.attachment(), del.Message, op.later())
	op.keep(journal.Now, del.Message)
	add.err.Details = joined(add.err.Details, note)
	return add, something
}

// later says what becomes of an address that could not be released.
func (op *operation) later() string {
	if op.entry == nil {
		return "nothing is recorded: its address may be left, call DEL again"
	}
	return "its address may be left: it is released later, from its record, or by a DEL"
}

// released says whether a DEL of our own did its work, or had none to do.
func (op *operation) released(del result) bool {
	return del.err == nil || op.conf.settings.policyFor("DEL").Decide(del.Outcome).Then == policy.Succeed
}

// errUnprinted is why the result of a good ADD is taken back.
var errUnprinted = errors.New("the result could not be given to the caller")

// undo releases what a good ADD allocated, since its result could not be
// printed. It takes the lock anew: others had it meanwhile. A repeated ADD only
// said again what was so before.
func (op *operation) undo(ctx context.Context, cause error) *Error {
	e := newError(codeIO, fmt.Sprintf("ADD of %s: %v: %v", op.attachment(), errUnprinted, cause), "")
	op.line.Verdict, op.line.Rule = string(policy.Fail), ""
	if op.before == repeated {
		return e
	}
	op.keep(journal.Now, e.Msg)
	if del := op.attempt(ctx, "DEL", 1); !op.released(del) {
		e.Details = "the rollback failed: " + del.Message + "; " + op.later()
		return e
	}
	op.forget()
	e.Details = "rolled back"
	return e
}
