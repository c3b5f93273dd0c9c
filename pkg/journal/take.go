package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

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
	e.Record, e.size, e.Newer = r, int64(whole), errors.Is(err, ErrNewer)
	if err == nil && whole < len(text) {
		return e.mend(text[:whole])
	}
	if err != nil && !e.Newer {
		return brokenError{err}
	}
	return nil
}

// mend takes away a last line that was never finished. What that made of the
// record is written in the same step where it matters: the next reader could no
// longer tell that something was cut off.
func (e *Entry) mend(whole []byte) error {
	if before, _, _ := parse(whole); before.State != e.State {
		return e.rewrite(&e.Record)
	}
	return unix.Ftruncate(int(e.file), e.size)
}

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
