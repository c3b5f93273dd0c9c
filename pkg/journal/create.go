package journal

import (
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

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
	var f handle
	var err error
	for range 100 { // the last record of a container takes its folder along
		if err := makeFolder(dir); err != nil {
			return -1, err
		}
		f, err = openFile(dir, unix.O_TMPFILE)
		if err != unix.ENOENT && err != unix.EPERM { // EPERM: ext4, in a folder that is just removed
			return f, err
		}
	}
	return -1, &os.PathError{Op: "create in", Path: dir, Err: err}
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
	if err := e.link(); err != nil {
		e.j.dropMark(e.Delegate, e.Mark)
		return &os.PathError{Op: "create", Path: e.path, Err: err}
	}
	return nil
}

// link gives the file its name. Its folder may have gone meanwhile, with the last
// record that was in it.
func (e *Entry) link() error {
	var err error
	for range 100 {
		err = unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(int(e.file)), unix.AT_FDCWD, e.path, unix.AT_SYMLINK_FOLLOW)
		if err != unix.ENOENT {
			return err
		}
		if made := makeFolder(filepath.Dir(e.path)); made != nil {
			return made
		}
	}
	return err
}
