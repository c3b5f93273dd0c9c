package delegate

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// busyPatience is how long a binary that is open for writing, being
// installed just now, is tried again.
const busyPatience = 2 * time.Second

// start forks the delegate. All descriptors are born close-on-exec: the
// delegate gets its three and what it inherits, nothing else.
func (c Cmd) start(ctx context.Context) (p *process, err error) {
	p = &process{cmd: c, pidfd: -1}
	p.setup()
	var stdin, stdout, stderr = -1, -1, -1
	defer func() {
		closeAll(stdin, stdout, stderr)
		if err != nil {
			p.close()
			p = nil
		}
	}()
	if stdin, err = stdinFile(c.Stdin); err != nil {
		return p, fmt.Errorf("stdin of delegate %s: %w", c.Path, err)
	}
	if stdout, err = p.pipe(onStdout); err != nil {
		return p, fmt.Errorf("stdout of delegate %s: %w", c.Path, err)
	}
	if stderr, err = p.pipe(onStderr); err != nil {
		return p, fmt.Errorf("stderr of delegate %s: %w", c.Path, err)
	}
	if err = p.openWake(); err != nil {
		return p, fmt.Errorf("eventfd for delegate %s: %w", c.Path, err)
	}
	return p, p.fork(ctx, stdin, stdout, stderr)
}

// fork starts the process and its clock.
func (p *process) fork(ctx context.Context, stdio ...int) error {
	attr := &syscall.ProcAttr{Env: p.cmd.Env, Sys: &syscall.SysProcAttr{
		Setpgid:   !p.cmd.SameGroup,
		Pdeathsig: syscall.SIGKILL,
	}}
	if !p.cmd.noPidFD {
		attr.Sys.PidFD = &p.pidfd
	}
	for _, fd := range stdio {
		attr.Files = append(attr.Files, uintptr(fd))
	}
	attr.Files = append(attr.Files, p.cmd.Inherit...)

	p.began = time.Now()
	pid, err := syscall.ForkExec(p.cmd.Path, []string{p.cmd.Path}, attr)
	pause := 10 * time.Millisecond
	for ; err == syscall.ETXTBSY && p.mayWait(ctx, pause); pause = min(2*pause, busyPatience/8) {
		pid, err = syscall.ForkExec(p.cmd.Path, []string{p.cmd.Path}, attr)
	}
	if err == syscall.ETXTBSY && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return startError(p.cmd.Path, err)
	}
	p.pid = pid
	p.setClock()
	return nil
}

// mayWait sleeps and says whether another try still fits: in our patience with
// a busy binary, in the delegate's timeout, and in the caller's context.
func (p *process) mayWait(ctx context.Context, pause time.Duration) bool {
	limit := busyPatience
	if t := p.cmd.Timeout; t > 0 && t < limit {
		limit = t
	}
	if time.Since(p.began)+pause > limit {
		return false
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func startError(path string, err error) error {
	for _, missing := range []syscall.Errno{syscall.ENOENT, syscall.EACCES, syscall.ENOEXEC, syscall.ENOTDIR, syscall.ELOOP} {
		if errors.Is(err, missing) {
			return &MissingError{Name: filepath.Base(path), Path: path, Err: err}
		}
	}
	return fmt.Errorf("start delegate %s: %w", path, err)
}

// stdinFile holds the delegate's stdin in memory: unlike a pipe it takes any
// amount at once, and nobody has to feed it.
func stdinFile(data []byte) (int, error) {
	fd, err := unix.MemfdCreate("stdin", unix.MFD_CLOEXEC|unix.MFD_NOEXEC_SEAL)
	if err == unix.EINVAL { // before Linux 6.3
		fd, err = unix.MemfdCreate("stdin", unix.MFD_CLOEXEC)
	}
	if err != nil {
		return -1, err
	}
	for done := 0; done < len(data); {
		// Pwrite leaves the offset, which the delegate shares, at the start.
		n, err := unix.Pwrite(fd, data[done:], int64(done))
		if err != nil && err != unix.EINTR {
			unix.Close(fd)
			return -1, err
		}
		done += max(n, 0)
	}
	return fd, nil
}

// pipe makes a pipe, watches its reading end and gives the delegate's end.
// Only ours is non-blocking: the delegate sees an ordinary pipe.
func (p *process) pipe(slot int) (int, error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return -1, err
	}
	p.fds[slot].Fd = int32(ends[0])
	return ends[1], unix.SetNonblock(ends[0], true)
}

func closeAll(fds ...int) {
	for _, fd := range fds {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}
