package delegate

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// What a process waits for, all in one poll.
const (
	onEnd    = iota // its pidfd
	onStdout        // our ends of its pipes
	onStderr
	onWake // another goroutine has news
	waits
)

// quiet is how long a delegate runs before anybody listens for the context's
// end: most are done by then, and to listen costs goroutines, and in the plugin
// threads, that would be for nothing.
const quiet = 100 * time.Millisecond

// stage is how far stopping a delegate has come.
type stage int

const (
	running stage = iota
	asked         // SIGTERM was sent
	killed        // SIGKILL was sent
)

// process is a delegate from its fork to its reaping, all in one thread.
type process struct {
	cmd   Cmd
	pid   int
	pidfd int // -1 on kernels without
	began time.Time

	listens bool // to the context's end
	stage   stage
	stopped End       // why we stopped it
	died    bool      // of a signal, ours or another's
	due     time.Time // when the next stage comes; zero: never

	fds    [waits]unix.PollFd
	wake   waker
	buf    []byte
	stdout head
	stderr tail
	relay  relay
}

func (p *process) setup() {
	for i := range p.fds {
		p.fds[i] = unix.PollFd{Fd: -1, Events: unix.POLLIN}
	}
	p.wake.fd = -1
	p.relay.w = p.cmd.Stderr
	if p.stderr.limit = p.cmd.KeepStderr; p.stderr.limit <= 0 {
		p.stderr.limit = maxStderr
	}
}

func (p *process) openWake() error {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return err
	}
	p.wake.fd = fd
	p.fds[onWake].Fd = int32(fd)
	return nil
}

func (p *process) setClock() {
	if p.cmd.Timeout > 0 {
		p.due = p.began.Add(p.cmd.Timeout)
	}
	if p.fds[onEnd].Fd = int32(p.pidfd); p.pidfd < 0 {
		go p.watch(p.pid)
	}
}

func (p *process) close() {
	p.wake.close()
	closeAll(p.pidfd, int(p.fds[onStdout].Fd), int(p.fds[onStderr].Fd))
}

// wait reads what the delegate writes and stops it when it is time. True: it
// has ended and is still a zombie, so that its id and its group's can't be
// anybody else's. False: nothing ends it.
func (p *process) wait(ctx context.Context) bool {
	deaf := func() bool { return true }
	defer func() { deaf() }()
	for {
		p.poll()
		p.read(onStdout)
		p.read(onStderr)
		if p.ended() {
			return true
		}
		if !p.listens && time.Since(p.began) >= quiet {
			p.listens = true
			deaf = context.AfterFunc(ctx, p.wake.ring)
		}
		if !p.advance(ctx) {
			return false
		}
	}
}

// poll waits until something happens or is due. An interrupted one is no
// different from one that found nothing.
func (p *process) poll() {
	timeout, due := -1, p.due
	if begin := p.began.Add(quiet); !p.listens && (due.IsZero() || begin.Before(due)) {
		due = begin
	}
	if !due.IsZero() {
		// Rounded up: a moment too early would be one idle round more.
		left := time.Until(due) + time.Millisecond - 1
		timeout = int(min(max(left, 0)/time.Millisecond, 1<<30))
	}
	if n, err := unix.Poll(p.fds[:], timeout); err != nil || n == 0 {
		for i := range p.fds {
			p.fds[i].Revents = 0
		}
	}
}

// cldExited is si_code of a child that exited by itself.
const cldExited = 1

// ended says whether the delegate has ended, if there is a sign of it.
func (p *process) ended() bool {
	if p.fds[onWake].Revents != 0 {
		p.wake.silence()
	} else if p.fds[onEnd].Revents == 0 {
		return false
	}
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, p.pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	p.died = info.Signo != 0 && info.Code != cldExited
	return err == unix.ECHILD || info.Signo != 0
}

// watch rings when the delegate has ended. It leaves the zombie as it is.
func (p *process) watch(pid int) {
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	p.wake.ring()
}

// advance takes the next step of stopping the delegate if it is due, and says
// whether there is any hope left.
func (p *process) advance(ctx context.Context) bool {
	due := !p.due.IsZero() && !time.Now().Before(p.due)
	switch {
	case p.stage == running && ctx.Err() != nil:
		p.stop(Interrupted)
	case !due:
	case p.stage == running:
		p.stop(TimedOut)
	case p.stage == asked:
		p.signal(unix.SIGKILL)
		p.stage, p.due = killed, time.Now().Add(killPatience)
	case p.stage == killed:
		return false
	}
	return true
}

func (p *process) stop(why End) {
	grace := p.cmd.Grace
	if grace <= 0 {
		grace = defaultGrace
	}
	p.signal(unix.SIGTERM)
	p.stage, p.stopped, p.due = asked, why, time.Now().Add(grace)
}

// signal goes to the delegate's group. The delegate may have left its group:
// then, and in any case for SIGKILL, it gets its own.
func (p *process) signal(sig syscall.Signal) {
	sent := !p.cmd.SameGroup && unix.Kill(-p.pid, sig) == nil
	if !sent || sig == unix.SIGKILL {
		_ = unix.Kill(p.pid, sig) // what it can't reach shows up as Alive
	}
}

// result takes what is left in the pipes, reaps the delegate and says what
// became of it.
func (p *process) result(ended bool) Run {
	r := Run{Took: time.Since(p.began), Exit: -1, Alive: !ended}
	torn := p.stage != running || p.died // its children may be at work still
	if ended && torn && !p.cmd.SameGroup {
		_ = unix.Kill(-p.pid, unix.SIGKILL)
	}
	p.drain(onStdout)
	p.drain(onStderr)
	if ended {
		p.reap(&r)
	}
	if p.stage != running {
		r.End = p.stopped
	}
	if torn {
		p.awaitGroup()
	}
	p.relay.flush()
	r.Stdout, r.Truncated = p.stdout.kept, p.stdout.more
	r.Stderr = p.stderr.last()
	r.StderrCut = p.stderr.cut || len(r.Stderr) < len(p.stderr.kept)
	return r
}

// awaitGroup waits a moment until all that was killed of the group is gone: a
// process that has SIGKILL coming may still be in a system call, making a lease
// of which the delegate that comes next would not know.
func (p *process) awaitGroup() {
	if p.cmd.SameGroup {
		return
	}
	for end := time.Now().Add(killPatience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if unix.Kill(-p.pid, 0) == unix.ESRCH {
			return
		}
	}
}

func (p *process) reap(r *Run) {
	var status syscall.WaitStatus
	_, err := syscall.Wait4(p.pid, &status, 0, nil)
	for err == syscall.EINTR {
		_, err = syscall.Wait4(p.pid, &status, 0, nil)
	}
	switch {
	case err != nil:
		r.End, r.Err = Exited, fmt.Errorf("exit code of delegate %s: somebody else has reaped it: %w", p.cmd.Path, err)
	case status.Signaled():
		r.End, r.Signal = Signaled, status.Signal()
	default:
		r.End, r.Exit = Exited, status.ExitStatus()
	}
}
