package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

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

// BusyError says that another operation has the key's record.
type BusyError struct {
	Key    Key
	Waited time.Duration
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("another operation on %s is still at work, waited %s for it", e.Key, e.Waited.Round(time.Millisecond))
}

// errGone: the file that was locked is no longer the record.
var errGone = errors.New("gone meanwhile")

// Take locks the record of a key, waiting for whoever has it until ctx is done
// or until until (zero: no limit), and returns it. Without one it makes first the record (made is true then), or
// returns nil if first is nil. warn gets a line for a record that had to be set
// aside.
//
// The error is a *BusyError, or says what can't be read or written.
func (j *Journal) Take(ctx context.Context, until time.Time, k Key, first *Record, warn func(string)) (e *Entry, made bool, err error) {
	began := time.Now()
	path := j.file(k)
	for {
		e, err = j.open(path, func(f handle) error { return wait(ctx, until, f) })
		switch {
		case err == nil:
			return e, false, nil
		case err == unix.ENOENT && first == nil:
			return nil, false, nil
		case err == unix.ENOENT:
			first.Key = k
			if e, err = j.create(path, *first); err == nil || !errors.Is(err, os.ErrExist) {
				return e, true, err
			}
		case errors.Is(err, errGone):
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.Is(err, errBusy):
			return nil, false, &BusyError{k, time.Since(began)}
		case unreadable(err):
			if err = j.setAside(path, err, warn); err != nil {
				return nil, false, err
			}
		default:
			return nil, false, err
		}
	}
}

var errBusy = errors.New("locked by another process")

// brokenError: what is there is no record, or not one that can be understood.
type brokenError struct{ error }

// unreadable says whether a record is broken, rather than the disk full or the
// process out of descriptors.
func unreadable(err error) bool {
	var broken brokenError
	if errors.As(err, &broken) {
		return true
	}
	for _, errno := range []error{unix.EISDIR, unix.ELOOP, unix.ENXIO, unix.EACCES, unix.EPERM} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// open opens, locks and reads a record. wait waits for its lock.
func (j *Journal) open(path string, wait func(handle) error) (*Entry, error) {
	f, err := openFile(path, unix.O_NOFOLLOW|unix.O_NONBLOCK)
	if err == unix.ENOENT {
		return nil, err // as it is: on the way of every new record
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	e := &Entry{j: j, file: f, path: path}
	if err := lock(f, wait); err != nil {
		if !errors.Is(err, errAbandoned) {
			f.close()
		}
		return nil, err
	}
	if err := e.read(); err != nil {
		f.close()
		return nil, err
	}
	return e, nil
}

// maxRecord is far more than a record can be: netconf and result have 1 MiB.
const maxRecord = 8 << 20

func (e *Entry) read() error {
	var st unix.Stat_t
	if err := unix.Fstat(int(e.file), &st); err != nil {
		return err
	}
	if st.Nlink == 0 {
		return errGone
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > maxRecord {
		return brokenError{errors.New("too large for a record, or not a regular file")}
	}
	text := make([]byte, st.Size)
	n, err := unix.Pread(int(e.file), text, 0)
	if err != nil {
		return err
	}
	text = text[:n]
	r, whole, err := parse(text)
	e.Record, e.size, e.Newer = r, int64(whole), errors.Is(err, errNewer)
	if err == nil && whole < len(text) {
		return unix.Ftruncate(int(e.file), e.size)
	}
	if err != nil && !e.Newer {
		return brokenError{err}
	}
	return nil
}

// create makes a record that is locked before it can be seen. The mark comes
// first: a record that nobody would find again must not exist.
func (j *Journal) create(path string, r Record) (*Entry, error) {
	r.Version, r.Boot, r.Due = Version, j.Boot, Uptime()
	r.Created = time.Now().UTC().Format(time.RFC3339)
	r.Mark = newMark(&r, path)
	f, err := j.temporary(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	e := &Entry{Record: r, j: j, file: f, path: path}
	if err := e.publish(r.whole()); err != nil {
		f.close()
		return nil, err
	}
	return e, nil
}

// temporary opens a file without a name in a folder, which it makes.
func (j *Journal) temporary(dir string) (handle, error) {
	for range 100 { // the last record of a container takes its folder along
		if err := makeFolder(dir); err != nil {
			return -1, err
		}
		f, err := openFile(dir, unix.O_TMPFILE)
		if err != unix.ENOENT {
			return f, err
		}
	}
	return -1, &os.PathError{Op: "create in", Path: dir, Err: unix.EBUSY}
}

func makeFolder(dir string) error {
	err := unix.Mkdir(dir, 0o700)
	if err == unix.ENOENT {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil && err != unix.EEXIST {
		return &os.PathError{Op: "mkdir", Path: dir, Err: err}
	}
	return nil
}

func (e *Entry) publish(line []byte) error {
	if err := unix.Flock(int(e.file), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return err
	}
	if err := e.write(line); err != nil {
		return err
	}
	if err := e.j.putMark(e.Delegate, e.Mark, e.path); err != nil {
		return err
	}
	if err := unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(int(e.file)), unix.AT_FDCWD, e.path, unix.AT_SYMLINK_FOLLOW); err != nil {
		e.j.dropMark(e.Delegate, e.Mark)
		return &os.PathError{Op: "create", Path: e.path, Err: err}
	}
	return nil
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

// setAside moves away what can't be read. It is for a person to look at.
func (j *Journal) setAside(path string, why error, warn func(string)) error {
	dir := filepath.Join(j.Dir, "aside")
	if err := makeFolder(dir); err != nil {
		return err
	}
	to := filepath.Join(dir, fmt.Sprintf("%s@%s.%d", filepath.Base(filepath.Dir(path)), filepath.Base(path), time.Now().UnixNano()))
	if len(filepath.Base(to)) > 250 {
		to = filepath.Join(dir, hash(path)+fmt.Sprint(time.Now().UnixNano()))
	}
	if err := os.Rename(path, to); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	warn(fmt.Sprintf("record %s can't be read (%v): set aside as %s", path, why, to))
	return nil
}
