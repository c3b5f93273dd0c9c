package journal

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// handle is an open file, past package os: that would ask the kernel more about
// it than we do.
type handle int

func openFile(path string, flags int) (handle, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_APPEND|unix.O_CLOEXEC|flags, 0o600)
	return handle(fd), err
}

func (f handle) close() { _ = unix.Close(int(f)) }

// dontWait is for those who only try.
func dontWait(handle) error { return errBusy }

// errAbandoned: a goroutine still waits for the file's lock and closes it.
var errAbandoned = errors.New("abandoned")

// lock locks a file, and leaves it to wait if somebody has it.
func lock(f handle, wait func(handle) error) error {
	err := unix.Flock(int(f), unix.LOCK_EX|unix.LOCK_NB)
	if err == unix.EWOULDBLOCK {
		return wait(f)
	}
	return err
}

// wait waits for a file's lock in the kernel. Only who waits pays for a timer.
func wait(ctx context.Context, until time.Time, f handle) error {
	if !until.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, until)
		defer cancel()
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	got, abandoned := make(chan error), make(chan struct{})
	defer close(abandoned)
	go func() {
		err := unix.Flock(int(f), unix.LOCK_EX)
		for err == unix.EINTR {
			err = unix.Flock(int(f), unix.LOCK_EX)
		}
		select {
		case got <- err:
		case <-abandoned:
			f.close()
		}
	}()
	select {
	case err := <-got:
		return err
	case <-ctx.Done():
		return errors.Join(errAbandoned, ctx.Err())
	}
}
