package chain

import (
	"context"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/ipam-guard/ipam-guard/pkg/delegate"
	"github.com/ipam-guard/ipam-guard/pkg/policy"
)

// add runs the delegate's ADD, again if the administrator asked for that and
// the failed one left nothing behind.
func (op *operation) add(ctx context.Context) answer {
	p := op.conf.settings.policyFor("ADD")
	for n := 1; ; n++ {
		r, clean := op.addOnce(ctx, n)
		if r.err == nil {
			op.line.Verdict = "ok"
			return answer{out: r.out}
		}
		v := p.Decide(r.Outcome)
		if clean && v.Retry && op.pause(ctx, p.Delay(n, op.Random())) {
			continue
		}
		op.line.Verdict, op.line.Rule = string(policy.Fail), v.Rule
		return failure(r.err)
	}
}

// addOnce runs one ADD and, if it failed, rolls it back under the same lock:
// between the two, nobody sees what it allocated. clean says that nothing can
// be left of it.
func (op *operation) addOnce(ctx context.Context, n int) (r result, clean bool) {
	if op.missing != nil {
		return op.attempt(ctx, "ADD", n), true
	}
	h, refused := op.acquire(ctx, "ADD")
	if refused != nil {
		return *refused, true
	}
	defer h.release(op)
	r = op.run(ctx, "ADD", n, h)
	switch {
	case r.err == nil, !r.started, delegate.StillHolds(r.Message):
		return r, true
	case r.interrupted: // no time is left to us; what is left behind is a DEL's
		r.err.Details = joined(r.err.Details, "what it allocated may be left: call DEL")
		return r, false
	case r.alive:
		r.err.Details = joined(r.err.Details, "the delegate could not be killed and goes on; not rolled back")
		return r, false
	}
	return op.rollBack(ctx, r, h)
}

// rollBack runs a DEL after a failed ADD. The ADD's own error stays what the
// caller gets; that the rollback failed too is added to its details.
func (op *operation) rollBack(ctx context.Context, add result, h *held) (result, bool) {
	del := op.run(ctx, "DEL", 1, h)
	if op.released(del) {
		return add, true
	}
	note := fmt.Sprintf("the rollback of %s failed too: %s; its address may be left, call DEL again", op.attachment(), del.Message)
	add.err.Details = joined(add.err.Details, note)
	return add, false
}

// released says whether a DEL of our own did its work, or had none to do.
func (op *operation) released(del result) bool {
	return del.err == nil || op.conf.settings.policyFor("DEL").Decide(del.Outcome).Then == policy.Succeed
}

// undo releases what a good ADD allocated, since its result could not be
// printed. It takes the lock anew: others had it meanwhile.
func (op *operation) undo(ctx context.Context, cause error) *types.Error {
	e := types.NewError(types.ErrIOFailure, fmt.Sprintf("ADD of %s: the result could not be given to the caller: %v", op.attachment(), cause), "rolled back")
	op.line.Verdict, op.line.Rule = string(policy.Fail), ""
	if del := op.attempt(ctx, "DEL", 1); !op.released(del) {
		e.Details = "the rollback failed: " + del.Message
	}
	return e
}
