package hostlock

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/gofrs/flock"
	"golang.org/x/sys/unix"
)

// openFlags: read-only, so that a file of mode 0444 will do; a FIFO must not block the open. The library adds nothing
// to them, package os adds O_CLOEXEC.
const openFlags = os.O_CREATE | os.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK

// fileID says which file a path or a descriptor leads to.
type fileID struct{ dev, ino uint64 }

func idOf(st *unix.Stat_t) fileID { return fileID{uint64(st.Dev), st.Ino} }

// try opens and tries the lock once; false means that it is busy. An error is an *OpenError.
func try(path string) (*flock.Flock, bool, error) {
	f := flock.New(path, flock.SetFlag(openFlags), flock.SetPermissions(0o600))
	var ok bool
	err := withFolder(path, func() (err error) {
		ok, err = f.TryLock()
		return err
	})
	if err != nil {
		return nil, false, &OpenError{Path: path, Err: err}
	}
	if !ok {
		// Don't queue for what isn't a lock file.
		if fi, err := os.Lstat(path); err == nil && !fi.Mode().IsRegular() {
			return nil, false, &OpenError{Path: path, Err: notRegular(fi.Mode())}
		}
	}
	return f, ok, nil
}

// lock blocks until the lock is held. An error is an *OpenError.
func lock(f *flock.Flock) error {
	for {
		err := withFolder(f.Path(), f.Lock)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return &OpenError{Path: f.Path(), Err: err}
		}
	}
}

// withFolder runs op, and once more after making path's folder if that is what was missing.
func withFolder(path string, op func() error) error {
	err := op()
	if !errors.Is(err, unix.ENOENT) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return op()
}

// lockedFile says which file f holds the lock on and whether its path still names that file.
func lockedFile(f *flock.Flock) (id fileID, current bool, err error) {
	fi, err := f.Stat()
	if err != nil {
		return fileID{}, false, &OpenError{Path: f.Path(), Err: err}
	}
	if !fi.Mode().IsRegular() {
		return fileID{}, false, &OpenError{Path: f.Path(), Err: notRegular(fi.Mode())}
	}
	st := fi.Sys().(*syscall.Stat_t)
	id = fileID{uint64(st.Dev), st.Ino}
	var now unix.Stat_t
	return id, unix.Lstat(f.Path(), &now) == nil && idOf(&now) == id, nil
}

// errReplaced is the Err of an OpenError if the path never named the file that had just been locked.
var errReplaced = errors.New("replaced again and again while it was being locked")

// notRegular is the Err of an OpenError for what isn't a regular file.
type notRegular fs.FileMode

func (m notRegular) Error() string {
	mode := fs.FileMode(m)
	switch {
	case mode.IsDir():
		return "is a folder"
	case mode&fs.ModeSymlink != 0:
		return "is a symbolic link"
	case mode&fs.ModeNamedPipe != 0:
		return "is a named pipe"
	case mode&fs.ModeSocket != 0:
		return "is a socket"
	case mode&fs.ModeDevice != 0:
		return "is a device"
	}
	return "is not a regular file"
}
