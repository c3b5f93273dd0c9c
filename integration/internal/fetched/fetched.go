// Package fetched has the runtimes that the tests drive: unpacked from Debian's
// packages or built from their modules, never installed, so that nothing of
// them starts by itself. Each is made once per version and machine, in a cache
// outside the tree, and appears there whole or not at all; several test
// processes may ask at once. What to do with them is left to the tests.
package fetched

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Cache is a folder of things that took long to get.
type Cache struct {
	Dir string
	Log io.Writer // one line before whatever takes long
}

// Default is the user's cache.
func Default(log io.Writer) (Cache, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return Cache{}, fmt.Errorf("a folder to keep runtimes in: %w", err)
	}
	return Cache{Dir: filepath.Join(dir, "ipam-guard-tests"), Log: log}, nil
}

// once returns the folder of that name, which make fills if it isn't there.
func (c Cache) once(name string, make func(dir string) error) (string, error) {
	unlock, err := c.lock(name)
	if err != nil {
		return "", err
	}
	defer unlock()
	whole := filepath.Join(c.Dir, name)
	if _, err := os.Stat(whole); !errors.Is(err, fs.ErrNotExist) {
		return whole, err
	}
	part := whole + ".part"
	if err := os.RemoveAll(part); err != nil { // of somebody who was killed
		return "", err
	}
	defer os.RemoveAll(part)
	if err := os.Mkdir(part, 0o755); err != nil {
		return "", err
	}
	if err := make(part); err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return whole, os.Rename(part, whole)
}

// lock keeps out whoever wants the same thing until it is made.
func (c Cache) lock(name string) (unlock func(), err error) {
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(c.Dir, name+".lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return func() { _ = f.Close() }, nil
}
