package hostlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// OpenError says that the lock file can't be made, opened or locked, or is none (not a regular file). Nobody is known to hold
// the lock.
type OpenError struct {
	Path string
	Err  error
}

func (e *OpenError) Error() string {
	return fmt.Sprintf("lock file %s can't be used: %v; %s", e.Path, e.Err, e.hint())
}

func (e *OpenError) Unwrap() error { return e.Err }

func (e *OpenError) hint() string {
	var kind notRegular
	is := func(errno unix.Errno) bool { return errors.Is(e.Err, errno) }
	switch {
	case errors.As(e.Err, &kind), is(unix.ELOOP), is(unix.EISDIR), is(unix.ENXIO), is(unix.ENODEV):
		return "it must be a regular file: remove what is there"
	case is(unix.ENOTDIR), is(unix.EEXIST):
		return "its folder is none: remove what is there or set another lockDir"
	case is(unix.EACCES), is(unix.EPERM):
		return "run as root or set lockDir to a folder that this user may write to"
	case is(unix.EROFS), is(unix.ENOSPC), is(unix.EDQUOT):
		return "set lockDir to a folder that can be written to"
	}
	return "check it and its folder, or set another lockDir"
}

// BusyError says that the lock was not had in time.
type BusyError struct {
	Path   string
	Waited time.Duration
	Holder *Holder // what the file said at the end; nil: nothing that can be read
	Cause  error   // context.Cause of the context that ended the wait; nil from TryAcquire
}

func busy(path string, start time.Time, cause error) *BusyError {
	return &BusyError{Path: path, Waited: time.Since(start), Holder: readHolder(path), Cause: cause}
}

func (e *BusyError) Error() string {
	holder := "holder unknown"
	if e.Holder != nil {
		holder = "holder: " + e.Holder.String()
	}
	msg := fmt.Sprintf("lock %s is busy, waited %v; %s", e.Path, e.Waited.Round(time.Millisecond), holder)
	if e.Cause != nil && !errors.Is(e.Cause, context.DeadlineExceeded) {
		return fmt.Sprintf("%s; gave up: %v", msg, e.Cause)
	}
	return msg
}

func (e *BusyError) Unwrap() error { return e.Cause }
