// Package delegate finds the delegate, the plugin behind the guard, and runs
// it once.
//
// A run promises:
//
//   - It ends when the direct child ends, or at the latest Timeout + Grace and
//     two seconds after it began, whatever the delegate, its children or the
//     reader of our stderr do. A grandchild that keeps stdout or stderr open
//     adds nothing.
//   - At the timeout the whole process group is ended, SIGTERM first, SIGKILL
//     after the grace, and no signal ever reaches a process that isn't the
//     delegate's: all are sent before the child is reaped. The same where it died
//     of a signal of somebody else's: what it had begun must not go on beside
//     the next run. After a normal end nothing is killed: some plugins start
//     daemons.
//   - If this process is killed, the direct child dies with it.
//   - Memory stays small and the delegate is never held up, however much it
//     writes.
//
// What a run means, whether it is done again and what the runtime is told is
// left to others; so is the lock under which it happens.
package delegate

import (
	"context"
	"io"
	"syscall"
	"time"
)

// MaxResult is how much of the delegate's stdout is kept.
const MaxResult = 1 << 20

const (
	maxStderr    = 64 << 10    // kept of stderr, its end
	defaultGrace = time.Second // between SIGTERM and SIGKILL
	killPatience = time.Second // after SIGKILL, for a process that doesn't die
)

// Cmd is one delegate to run. Only Path is needed.
type Cmd struct {
	Path  string   // the file, as Find gives it; argv[0] too
	Env   []string // the whole environment; nil: an empty one
	Stdin []byte

	Timeout time.Duration // counted from the fork; 0: none
	Grace   time.Duration // between SIGTERM and SIGKILL; 0: one second

	// Inherit are descriptors that the delegate gets as 3, 4, ..., such as the
	// host lock's: what the delegate leaves behind then still holds the lock.
	Inherit []uintptr

	// SameGroup leaves the delegate in our process group, and signals it alone:
	// for a guard below another guard, whose group ends as one.
	SameGroup bool

	// KeepStderr is how much of the end of stderr is kept, in bytes; 0: 64 KiB.
	KeepStderr int

	// Stderr is handed the delegate's stderr as it comes, from another
	// goroutine. A writer that fails, or that still blocks shortly after the
	// run has ended, changes nothing; one that falls far behind misses a part.
	Stderr io.Writer

	Started func(pid int) // called once, right after the fork

	noPidFD bool // as on a kernel without pidfds
}

// End is how a run ended.
type End int

const (
	NotStarted  End = iota // no process came to be: Err says why
	Exited                 // by itself, with an exit code
	Signaled               // of a signal that we did not send
	TimedOut               // stopped by us at Timeout
	Interrupted            // stopped by us because the context was done
)

func (e End) String() string {
	names := [...]string{"not started", "exited", "signaled", "timed out", "interrupted"}
	if e < 0 || int(e) >= len(names) {
		return "unknown end"
	}
	return names[e]
}

// Run is what became of a Cmd.
type Run struct {
	End    End
	Exit   int            // exit code; -1 if there is none
	Signal syscall.Signal // what the process died of, 0 if it exited

	Stdout    []byte // the first MaxResult bytes
	Truncated bool   // there was more
	Stderr    []byte // the last KeepStderr bytes
	StderrCut bool   // there was more before
	Took      time.Duration

	// Err is why there is no process or no exit code: a *MissingError if the
	// file can't be executed, the context's cause if it was done beforehand.
	Err error

	// Alive means that even SIGKILL didn't end the process within a second
	// (stuck in the kernel, or another user's): it still runs and isn't reaped.
	Alive bool
}

// Run runs the delegate once and waits for its end. When ctx is done, the
// delegate is stopped as at its timeout; in its first moments that is noticed a
// little late, see quiet.
func (c Cmd) Run(ctx context.Context) Run {
	if ctx.Err() != nil {
		return Run{Exit: -1, Err: context.Cause(ctx)}
	}
	// The parent-death signal comes when the thread that forked ends. That is when
	// this process ends: the runtime keeps its threads, but for those of goroutines
	// that were locked to them, and nothing here locks.
	p, err := c.start(ctx)
	if err != nil {
		return Run{Exit: -1, Err: err}
	}
	defer p.close()
	if c.Started != nil {
		c.Started(p.pid)
	}
	return p.result(p.wait(ctx))
}
