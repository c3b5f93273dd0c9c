package telemetry

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/gofrs/flock"
	"golang.org/x/sys/unix"
)

// rotate moves the file out of the way of the next `more` bytes. Whoever finds
// the lock taken leaves it to the holder, whoever gets it looks again: the file
// is renamed once, however many processes saw it full. Writers take no lock:
// one that still has the renamed file open adds its line there.
func (l Log) rotate(more int) error {
	// Of a linked file, the target is rotated: the link stays, and two names
	// for one file come to one lock.
	path, err := filepath.EvalSymlinks(l.File)
	if err != nil {
		return moved(err)
	}
	// Opening the lock must not hang either, nor lead elsewhere.
	lock := flock.New(path+".lock", flock.SetFlag(os.O_CREATE|unix.O_NONBLOCK|unix.O_NOFOLLOW))
	locked, err := lock.TryLock()
	if err != nil {
		return fmt.Errorf("rotate: lock: %w", err)
	}
	if !locked {
		return nil
	}
	defer func() { _ = lock.Unlock() }()

	info, err := os.Lstat(path)
	if err != nil {
		return moved(err)
	}
	if !info.Mode().IsRegular() || !l.outgrown(info.Size(), more) {
		return nil
	}
	return moved(l.shift(path))
}

// shift renames FILE to FILE.1 and those before it one further, up to the first
// free number; without one, the last is overwritten.
func (l Log) shift(path string) error {
	if l.Keep <= 0 {
		return os.Remove(path)
	}
	last := 1
	for last < l.Keep && exists(numbered(path, last)) {
		last++
	}
	for n := last; n > 1; n-- {
		if err := os.Rename(numbered(path, n-1), numbered(path, n)); err != nil {
			return err
		}
	}
	return os.Rename(path, numbered(path, 1))
}

func numbered(path string, n int) string { return path + "." + strconv.Itoa(n) }

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// moved: a file that is gone has been rotated by somebody else, an
// administrator's logrotate perhaps.
func moved(err error) error {
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("rotate: %w", err)
}
