package journal

import (
	"errors"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// Each calls f with every record, in no order, and takes none from who is at
// work: busy says that somebody is, the record is then as he left it so far. Of
// those that can't be read, or are of a newer version (ErrNewer), it calls closed
// with what their names say, as Walk does, and why. The error is why there is
// nothing to be seen at all; no folder is no error.
func (j *Journal) Each(f func(r *Record, busy bool), closed func(k Key, why error)) error {
	d, err := os.Open(j.records())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_ = d.Close()
	buf := make([]byte, 32<<10) // one for all: there may be many thousands
	for _, container := range listInto(buf, j.records(), math.MaxInt) {
		dir := j.records() + "/" + container
		for _, file := range listInto(buf, dir, math.MaxInt) {
			r, busy, err := see(dir + "/" + file)
			switch {
			case errors.Is(err, os.ErrNotExist):
			case err != nil:
				closed(named(container, file), err)
			default:
				f(&r, busy)
			}
		}
	}
	return nil
}

// see reads a record, and says whether somebody has its lock: for that moment it
// is tried as a reader. Past package os, which would ask the kernel twice as much.
func see(path string) (r Record, busy bool, err error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return r, false, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > maxRecord {
		return r, false, brokenError{errors.New("too large for a record, or not a regular file")}
	}
	busy = unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB) == unix.EWOULDBLOCK
	text := make([]byte, st.Size)
	n, err := unix.Pread(fd, text, 0)
	if err != nil {
		return r, busy, &os.PathError{Op: "read", Path: path, Err: err}
	}
	r, _, err = parse(text[:n])
	return r, busy, err
}
