package chain

import (
	"context"
	"fmt"
	"time"

	"github.com/ipam-guard/ipam-guard/pkg/delegate"
	"github.com/ipam-guard/ipam-guard/pkg/policy"
)

// attempt takes the lock, runs the delegate once under it and gives the lock
// back. n counts from 1.
func (op *operation) attempt(ctx context.Context, verb string, n int) result {
	if op.missing != nil {
		return op.judge(verb, n, delegate.Run{End: delegate.NotStarted, Err: op.missing})
	}
	h, refused := op.acquire(ctx, verb, 0)
	if refused != nil {
		return *refused
	}
	defer h.release(op)
	return op.run(ctx, verb, n, h)
}

// runIfThere runs the delegate once, if there is one.
func (op *operation) runIfThere(ctx context.Context, verb string, h *held) result {
	if op.missing != nil {
		return op.judge(verb, 1, delegate.Run{End: delegate.NotStarted, Err: op.missing})
	}
	return op.run(ctx, verb, 1, h)
}

// run runs the delegate once, with its whole timeout, while h is held. A DEL
// that has to show that it did its work may take a run for each range.
func (op *operation) run(ctx context.Context, verb string, n int, h *held) result {
	if verb == "DEL" && op.confirmation() != nil {
		return op.confirmed(ctx, n, h)
	}
	return op.once(ctx, verb, n, h, op.command(verb))
}

// once runs the delegate.
func (op *operation) once(ctx context.Context, verb string, n int, h *held, cmd delegate.Cmd) result {
	if ctx.Err() != nil {
		return op.stopped(verb, n, context.Cause(ctx))
	}
	if !op.plainly {
		cmd.Timeout, cmd.Grace = op.conf.settings.Timeout.Of(verb), grace
	}
	if h.lock != nil {
		if fd, ok := h.lock.FD(); ok {
			cmd.Inherit = []uintptr{fd}
		}
		cmd.Started = h.lock.Group
	}
	r := op.judge(verb, n, cmd.Run(ctx))
	h.alive = h.alive || r.alive
	return r
}

func (op *operation) command(verb string) delegate.Cmd {
	return delegate.Cmd{Path: op.binary, Env: op.environ(verb), Stdin: op.netconf, Stderr: op.Stderr, SameGroup: op.plainly}
}

// refused is the outcome of an attempt that err keeps from being made.
func (op *operation) refused(verb string, n int, err *Error) result {
	return result{
		Outcome: policy.Outcome{Verb: verb, Delegate: op.conf.typ, Kind: policy.Error, Code: err.Code, Message: err.Error(), Attempt: n},
		err:     err,
	}
}

// stopped is the outcome of a run that did not begin, since the guard was told
// to stop.
func (op *operation) stopped(verb string, n int, cause error) result {
	e := newError(codeTryAgain, fmt.Sprintf("%s: %s of %s was not begun: %v", op.conf.typ, verb, op.attachment(), cause), "")
	return result{
		Outcome: policy.Outcome{Verb: verb, Delegate: op.conf.typ, Kind: policy.Killed, Code: e.Code, Message: e.Msg, Attempt: n},
		err:     e, interrupted: true,
	}
}

// pause waits before the next attempt, without the lock. It returns false if
// that attempt would not fit the deadline any more, or the guard is to stop.
func (op *operation) pause(ctx context.Context, d time.Duration) bool {
	s := &op.conf.settings
	if time.Since(op.Start)+d+s.need(op.verb) > s.Deadline.Of(op.verb) {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
