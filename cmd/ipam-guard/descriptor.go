package main

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// descriptor is stdin, stdout or stderr, past package os: that would end the
// process with SIGPIPE once the reader of stdout or stderr is gone, before what
// was allocated is given back. The signal itself is left as it is, for the
// delegate inherits what is ignored.
type descriptor int

func (d descriptor) Write(text []byte) (int, error) {
	for done := 0; done < len(text); {
		n, err := unix.Write(int(d), text[done:])
		if err != nil && err != unix.EINTR {
			return done, os.NewSyscallError("write", err)
		}
		done += max(n, 0)
	}
	return len(text), nil
}

func (d descriptor) Read(into []byte) (int, error) {
	for {
		n, err := unix.Read(int(d), into)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return 0, os.NewSyscallError("read", err)
		case n == 0 && len(into) > 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

// Stat is of the file behind the descriptor.
func (d descriptor) Stat() (os.FileInfo, error) {
	if d == 1 {
		return os.Stdout.Stat()
	}
	return nil, os.ErrInvalid
}
