package chain

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/ipam-guard/ipam-guard/pkg/hostlock"
	"github.com/ipam-guard/ipam-guard/pkg/policy"
)

// chooseLock returns the lock file's path, "" for no lock.
func (op *operation) chooseLock() string {
	s := op.conf.settings
	var name string
	switch {
	case s.Lock.Name != "":
		name = "name-" + s.Lock.Name
	case s.Lock.Scope == "delegate":
		name = "delegate-" + asFileName(op.conf.typ)
	case s.Lock.Scope == "network":
		name = "network-" + asFileName(op.conf.name)
	case s.Lock.Scope == "host":
		name = "host"
	default:
		return ""
	}
	return s.LockDir + "/" + name + ".lock"
}

// asFileName escapes what can't stand in a file's name. Different texts give
// different names.
func asFileName(text string) string {
	if fileName(text) {
		return text
	}
	var b strings.Builder
	for _, c := range []byte(text) {
		if fileName(string(rune(c))) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02x", c)
		}
	}
	if name := b.String(); len(name) <= 150 {
		return name
	}
	sum := fnv.New128a()
	_, _ = sum.Write([]byte(text))
	return fmt.Sprintf("%.100s%%%x", b.String(), sum.Sum(nil))
}

// held is the host lock while an attempt has it. The zero value is no lock.
type held struct {
	lock  *hostlock.Lock
	alive bool // a delegate could not be stopped: it keeps the lock until its end
}

// acquire takes the host lock for an attempt of verb, waiting while what the
// attempt needs, and extra before it, still fits the deadline. A refusal is an
// outcome of kind lock.
func (op *operation) acquire(ctx context.Context, verb string, extra time.Duration) (*held, *result) {
	if op.lockPath == "" {
		return &held{}, nil
	}
	op.line.Lock = op.lockPath
	s := &op.conf.settings
	lock, err := hostlock.Acquire(ctx, op.fits(s.need(verb)+extra), op.lockPath, op.holder(), op.warn)
	var open *hostlock.OpenError
	var busy *hostlock.BusyError
	switch {
	case err == nil:
		op.line.LockWait += lock.Waited()
		return &held{lock: lock}, nil
	case errors.As(err, &busy) && ctx.Err() != nil:
		op.line.LockWait += busy.Waited
		r := op.locked(codeTryAgain, err)
		r.interrupted = true
		return nil, r
	case errors.As(err, &busy):
		op.line.LockWait += busy.Waited
		return nil, op.locked(codeTryAgain, err)
	case errors.As(err, &open) && s.Lock.OnUnavailable == "proceed" && op.verb != "GC":
		op.warn(err.Error() + "; going on without the lock, as lock.onUnavailable says")
		return &held{}, nil
	}
	return nil, op.locked(codeIO, err)
}

// holder is what the lock file says for people.
func (op *operation) holder() hostlock.Holder {
	return hostlock.Holder{Verb: op.verb, Network: op.conf.name, Container: op.container, IfName: op.ifname, Since: time.Now()}
}

// fits is when less than need will be left of the deadline.
func (op *operation) fits(need time.Duration) time.Time {
	if !op.ends.IsZero() {
		return op.ends.Add(-need)
	}
	return op.Start.Add(op.conf.settings.Deadline.Of(op.verb) - need)
}

// locked is the outcome of an attempt that did not get the lock.
func (op *operation) locked(code uint, err error) *result {
	e := newError(code, fmt.Sprintf("%s of %s: %v", op.verb, op.attachment(), err),
		fmt.Sprintf("the delegate %s was not run", op.conf.typ))
	return &result{Outcome: policy.Outcome{Verb: op.verb, Delegate: op.conf.typ, Kind: policy.Lock, Code: code, Message: e.Error()}, err: e}
}

// release gives the lock back, unless a delegate still lives that could not be
// stopped: the descriptor that it inherited keeps the lock for as long.
func (h *held) release(op *operation) {
	if h.lock == nil || h.alive {
		return
	}
	if err := h.lock.Unlock(); err != nil {
		op.warn(fmt.Sprintf("host lock %s: %v", op.lockPath, err))
	}
}
