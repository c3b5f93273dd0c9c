package journal

import (
	"errors"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Each calls f with every record, in no order, or with those of the containers
// that begin with one of these texts: it reads no others. It takes none from who
// is at work: busy says that somebody is, the record is then as he left it so far.
// Of those that can't be read, or are of a newer version (ErrNewer), it calls
// closed with what their names say, as Walk does, and why. Both are called from
// several goroutines at once. The error is why there is nothing to be seen at all;
// no folder is no error.
func (j *Journal) Each(f func(r *Record, busy bool), closed func(k Key, why error), containers ...string) error {
	d, err := os.Open(j.records())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_ = d.Close()
	folders := slices.DeleteFunc(list(j.records(), math.MaxInt), func(name string) bool { return !begins(name, containers) })
	var next atomic.Int32
	var all sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(folders)) {
		all.Go(func() {
			l := looker{make([]byte, 32<<10), make([]byte, 64<<10), f, closed}
			for i := int(next.Add(1)); i <= len(folders); i = int(next.Add(1)) {
				l.folder(j.records(), folders[i-1])
			}
		})
	}
	all.Wait()
	return nil
}

// begins says whether a folder may be of a container that begins with one of the
// texts. Where a name was cut, it is what stands before the hash that begins so.
func begins(folder string, containers []string) bool {
	const uncut = 150 - len("%0123456789abcdef")
	return len(containers) == 0 || slices.ContainsFunc(containers, func(text string) bool {
		name := asName(text, math.MaxInt)
		return strings.HasPrefix(folder, name[:min(len(name), uncut)])
	})
}

// looker looks into one folder after another, with buffers that are made once:
// there may be many thousands.
type looker struct {
	names, text []byte
	f           func(r *Record, busy bool)
	closed      func(k Key, why error)
}

func (l *looker) folder(records, container string) {
	path := records + "/" + container
	dir, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT || err == unix.ENOTDIR {
		return
	}
	if err != nil { // what is in there must not look as if it weren't
		l.closed(Key{Container: fromName(container)}, &os.PathError{Op: "open", Path: path, Err: err})
		return
	}
	defer unix.Close(dir)
	for _, file := range namesIn(dir, l.names, math.MaxInt) {
		var r Record
		busy, err := l.see(dir, file, &r)
		var errno unix.Errno
		switch {
		case err == unix.ENOENT:
		case errors.As(err, &errno):
			l.closed(named(container, file), &os.PathError{Op: "read", Path: path + "/" + file, Err: err})
		case err != nil:
			l.closed(named(container, file), err)
		default:
			l.f(&r, busy)
		}
	}
}

// see reads a record, and says whether somebody has its lock: for that moment it
// is tried as a reader. It asks the kernel as little as it can: past package os,
// and without asking first for the size.
func (l *looker) see(dir int, file string, r *Record) (busy bool, err error) {
	fd, err := unix.Openat(dir, file, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, err
	}
	busy = unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB) == unix.EWOULDBLOCK
	n, err := unix.Pread(fd, l.text, 0)
	for n == len(l.text) && n <= maxRecord {
		l.text = make([]byte, 2*n)
		n, err = unix.Pread(fd, l.text, 0)
	}
	_ = unix.Close(fd)
	switch {
	case err == unix.EISDIR, err == unix.ESPIPE, n > maxRecord:
		return busy, brokenError{errors.New("too large for a record, or not a regular file")}
	case err != nil:
		return busy, err
	}
	*r, _, err = parse(l.text[:n])
	return busy, err
}
