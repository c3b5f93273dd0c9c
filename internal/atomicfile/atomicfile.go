// Package atomicfile puts a new content in a file's place, so that who reads
// meanwhile gets the old one or the new one, whole, whatever is killed and
// whenever the power goes.
//
// It promises:
//
//   - The new content is on disk before it can be seen, and its name is on disk
//     before the call returns: file and folder are synced.
//   - A file that is there keeps its mode and owner. Behind a symbolic link, it
//     is the target that changes, and the link stays.
//   - A file that already has the content is not touched.
//   - What somebody else wrote since it was read is not overwritten.
//   - Writing happens in the file's own folder, as containerd wants it, under a
//     name that no runtime takes for a configuration. What a killed call leaves
//     of that is removed by the next one for the same file.
//
// google/renameio does most of this. But its temporary file has a name that a
// later call can't tell from other people's, and stays open for writing until
// it takes the old one's place, so that a binary can't be tried out before.
package atomicfile

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ErrChanged says that the file no longer has the content that it had when it was read.
var ErrChanged = errors.New("was changed by somebody else meanwhile: try again")

// Replace makes to the content of the file at path, which has from; from is nil
// for a file that isn't there.
func Replace(path string, from, to []byte) error {
	w, err := begin(path)
	if err != nil {
		return err
	}
	defer w.end()
	switch now, err := os.ReadFile(w.path); {
	case errors.Is(err, fs.ErrNotExist) && from == nil:
	case err != nil:
		return err
	case bytes.Equal(now, to):
		return nil
	case from == nil || !bytes.Equal(now, from):
		return fmt.Errorf("%s: %w", w.path, ErrChanged)
	}
	return w.write(to, 0o644, keep, nil)
}

// Install makes to the content of an executable file. check looks at the new
// file, by its path, before it takes the place of an old one; its error leaves
// that in place. It returns whether anything had to be changed.
func Install(path string, to []byte, check func(path string) error) (changed bool, err error) {
	w, err := begin(path)
	if err != nil {
		return false, err
	}
	defer w.end()
	now, err := os.ReadFile(w.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	info, err := os.Stat(w.path)
	if err == nil && bytes.Equal(now, to) && info.Mode().Perm()&0o111 == 0o111 {
		return false, check(w.path)
	}
	return true, w.write(to, 0o755, replace, check)
}

// Remove removes a file, durably. One that isn't there is no error.
func Remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

// writer is somebody who changes a file. Writers of a folder take turns.
type writer struct {
	path   string // behind all symbolic links
	folder *os.File
}

// patience is how long one writer waits for others of the folder.
const patience = 10 * time.Second

func begin(path string) (*writer, error) {
	path, err := target(path)
	if err != nil {
		return nil, err
	}
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		err := unix.Flock(int(folder.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return &writer{path, folder}, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(end) {
			_ = folder.Close()
			return nil, fmt.Errorf("lock of folder %s, which another process has: %w", filepath.Dir(path), err)
		}
	}
}

// target follows symbolic links. A file that isn't there is itself.
func target(path string) (string, error) {
	resolved, err := filepath.EvalSymlinks(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return resolved, err
	}
	if _, err := os.Lstat(path); err == nil {
		return "", fmt.Errorf("%s is a symbolic link that leads nowhere", path)
	}
	return path, nil
}

func (w *writer) end() { _ = w.folder.Close() }

// temporary is where the new content is written. Its name ends in nothing that a
// runtime reads, whatever the file's own does.
func (w *writer) temporary() string {
	return filepath.Join(filepath.Dir(w.path), "."+filepath.Base(w.path)+".ipam-guardctl")
}

// What becomes of the mode and owner of a file that is there.
const (
	keep    = true
	replace = false
)

func (w *writer) write(text []byte, mode fs.FileMode, keep bool, check func(path string) error) error {
	tmp := w.temporary()
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err := w.fill(tmp, text, mode, keep)
	if err == nil && check != nil {
		err = check(tmp)
	}
	if err == nil {
		err = os.Rename(tmp, w.path)
	}
	if err != nil {
		_ = os.Remove(tmp)
		return err
	}
	if err := w.folder.Sync(); err != nil {
		return fmt.Errorf("%s has its new content, but that may not outlive a loss of power: %w", w.path, err)
	}
	return nil
}

// fill writes the temporary file, and closes it.
func (w *writer) fill(tmp string, text []byte, mode fs.FileMode, keep bool) (err error) {
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	if _, err := f.Write(text); err != nil {
		return err
	}
	if old, err := os.Stat(w.path); err == nil && keep {
		mode = old.Mode()
		if err := sameOwner(f, old); err != nil {
			return fmt.Errorf("the owner of %s can't be kept: %w", w.path, err)
		}
	}
	if err := f.Chmod(mode); err != nil {
		return err
	}
	return f.Sync()
}

func sameOwner(f *os.File, old fs.FileInfo) error {
	mine, err := f.Stat()
	if err != nil {
		return err
	}
	want, have := old.Sys().(*syscall.Stat_t), mine.Sys().(*syscall.Stat_t)
	if want.Uid == have.Uid && want.Gid == have.Gid {
		return nil
	}
	return f.Chown(int(want.Uid), int(want.Gid))
}

func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
