package journal

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Entry is a record whose lock is held: until Close, nobody else changes it.
type Entry struct {
	Record
	Newer bool // written by a newer version: it is locked, but never changed

	j    *Journal
	file handle
	path string
	size int64 // of its whole lines
}

// write appends a line, or leaves the file as it was.
func (e *Entry) write(line []byte) error {
	line = append(line, '\n')
	n, err := unix.Write(int(e.file), line)
	if err == nil && n < len(line) {
		err = unix.ENOSPC
	}
	if err != nil {
		_ = unix.Ftruncate(int(e.file), e.size)
		return err
	}
	e.size += int64(n)
	return nil
}

// Update changes the record by change and writes what is different. After an
// error it is as it was.
//
// The mark moves first where the record will have to be released, and last
// where it won't: killed between the two, it is found among those to release.
func (e *Entry) Update(change func(*Record)) error {
	if e.Newer {
		return nil
	}
	next := e.Record
	change(&next)
	next.Boot = e.j.Boot
	if !strings.HasPrefix(e.Mark, markOf(&next, e.path)) {
		next.Mark = newMark(&next, e.path)
	}
	line := e.difference(&next)
	first := next.State != Attached
	if first {
		e.j.moveMark(e.Delegate, e.Mark, next.Mark, e.path)
	}
	if err := e.append(line, &next); err != nil {
		if first {
			e.j.moveMark(e.Delegate, next.Mark, e.Mark, e.path)
		}
		return &os.PathError{Op: "write", Path: e.path, Err: err}
	}
	if !first {
		e.j.moveMark(e.Delegate, e.Mark, next.Mark, e.path)
	}
	e.Record = next
	return nil
}

// tooLong is where the lines of a record are made one again: one that can't be
// released for weeks is written at every try.
const tooLong = 256 << 10

// append writes the line that makes next of the record.
func (e *Entry) append(line []byte, next *Record) error {
	if e.size+int64(len(line)) < tooLong {
		return e.write(line)
	}
	return e.rewrite(next)
}

// rewrite puts a new file in the record's place, locked before it can be seen.
func (e *Entry) rewrite(next *Record) error {
	name := filepath.Join(e.j.Dir, "new-"+hash(e.path)) // nobody else's, while we have the lock
	f, err := openFile(name, unix.O_CREAT|unix.O_TRUNC)
	if err != nil {
		return err
	}
	fresh := &Entry{file: f, path: e.path}
	err = unix.Flock(int(f), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		err = fresh.write(next.whole())
	}
	if err == nil {
		err = os.Rename(name, e.path)
	}
	if err != nil {
		f.close()
		_ = os.Remove(name)
		return err
	}
	e.file.close()
	e.file, e.size = f, fresh.size
	return nil
}

// Remove ends the record: its address is released.
func (e *Entry) Remove() error {
	if e.Newer {
		return nil
	}
	if err := unix.Unlink(e.path); err != nil && err != unix.ENOENT {
		return &os.PathError{Op: "remove", Path: e.path, Err: err}
	}
	e.j.dropMark(e.Delegate, e.Mark)
	_ = unix.Rmdir(filepath.Dir(e.path)) // unless the container has others
	return nil
}

// Sync makes a promise of what is written: it outlives a loss of power.
func (e *Entry) Sync() error {
	if err := unix.Fsync(int(e.file)); err != nil {
		return err
	}
	for _, dir := range []string{filepath.Dir(e.path), e.j.records(), e.j.queue(e.Delegate), filepath.Dir(e.j.queue("")), e.j.Dir} {
		if err := syncFolder(dir); err != nil {
			return err
		}
	}
	return nil
}

func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// Close lets others have the record.
func (e *Entry) Close() { e.file.close() }
