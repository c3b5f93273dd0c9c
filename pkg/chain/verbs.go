package chain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipam-guard/ipam-guard/pkg/delegate"
	"github.com/ipam-guard/ipam-guard/pkg/policy"
)

// check asks the delegate, without the lock: CRI-O sends a CHECK after every
// ADD, and it changes nothing.
func (op *operation) check(ctx context.Context) answer {
	return op.plain(op.runIfThere(ctx, "CHECK", &held{}))
}

// plain answers with what the delegate said.
func (op *operation) plain(r result) answer {
	op.line.Verdict = "ok"
	if r.err == nil {
		return answer{}
	}
	op.line.Verdict = string(policy.Fail)
	return failure(r.err)
}

// statusMargin is kept from a STATUS timeout for stopping the delegate, so that
// the answer comes within it.
const statusMargin = 100 * time.Millisecond

// status answers whether an ADD can be served. It never waits for the lock:
// containerd asks every 5 seconds, and while it waits for an answer, one write
// to its conf folder stalls every stop of a pod.
func (op *operation) status(ctx context.Context) answer {
	unavailable := func(text string) answer {
		op.line.Verdict = string(policy.Fail)
		return failure(newError(codeNotAvailable, text, "ADD would fail"))
	}
	if op.missing != nil {
		return unavailable(op.missing.Error())
	}
	if op.lockPath != "" && op.conf.settings.Lock.OnUnavailable == "fail" {
		if err := writable(filepath.Dir(op.lockPath)); err != nil {
			return unavailable(fmt.Sprintf("lockDir: %v", err))
		}
	}
	if op.conf.settings.Records == "fail" {
		if err := op.journal.Writable(); err != nil {
			return unavailable(fmt.Sprintf("stateDir: %v", err))
		}
	}
	timeout := op.conf.settings.Timeout.Status
	margin := min(statusMargin, timeout/2)
	cmd := op.command("STATUS")
	cmd.Timeout, cmd.Grace = timeout-margin, margin/2
	r := op.judge("STATUS", 1, cmd.Run(ctx))
	if r.err != nil && r.Kind != policy.Error {
		r.err.Code = codeNotAvailable
	}
	return op.plain(r)
}

// writable says why files can't be made in a folder, or why it can't be made.
func writable(dir string) error {
	err := unix.Access(dir+"/.", unix.W_OK|unix.X_OK)
	if errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir) {
		return writable(filepath.Dir(dir))
	}
	if err != nil {
		return &os.PathError{Op: "write to", Path: dir, Err: err}
	}
	return nil
}

// passThrough runs the delegate as if the guard weren't there: for mode bypass,
// and below another guard. No lock, no clock, no policy; the delegate's own exit
// status and error. Only a DEL that can't be confirmed is an error to the guard
// above, which could not know.
func (op *operation) passThrough(ctx context.Context) answer {
	op.lockPath = "" // also if what was added has to be taken back
	op.line.Verdict = "bypass"
	if op.below() {
		op.line.Verdict = "below"
	}
	if op.unreadable != nil {
		return failure(op.unreadable)
	}
	op.plainly = true
	r := op.runIfThere(ctx, op.verb, &held{})
	if r.err == nil && (op.verb == "DEL" || op.verb == "ADD" && !op.below()) {
		op.drop(op.conf.typ)
	}
	switch {
	case r.err == nil && op.verb == "ADD":
		return answer{out: r.out}
	case r.err == nil:
		return answer{}
	case r.Kind == policy.Error && r.out != nil:
		return answer{out: r.out, exit: r.exit}
	}
	if op.verb == "DEL" {
		r.err = reword(r.err) // our own words; the delegate's are its own
	}
	return failure(r.err)
}

// version says which versions the guard speaks. A shadow speaks those of what it
// stands in front of.
func (op *operation) version(ctx context.Context) answer {
	if name := op.calledAs(); name != ownName {
		if binary, err := op.findBehind(name, op.path); err == nil {
			op.binary = binary
			cmd := op.command("VERSION")
			cmd.Stdin, cmd.Timeout = fmt.Appendf(nil, `{"cniVersion":%q}`, latest), builtin().Timeout.Check
			if r := cmd.Run(ctx); r.End == delegate.Exited {
				return answer{out: r.Stdout, exit: r.Exit}
			}
		}
	}
	list, _ := json.Marshal(versions)
	return answer{out: fmt.Appendf(nil, `{"cniVersion":%q,"supportedVersions":%s}`, latest, list)}
}

// drop ends the record that this attachment has with a delegate, and that doesn't
// tell what is so any more: bypass has attached it anew, or it was released.
func (op *operation) drop(delegateType string) {
	k := op.key()
	k.Delegate = delegateType
	if e := op.journal.Try(k); e != nil {
		_ = e.Remove()
		e.Close()
	}
}
