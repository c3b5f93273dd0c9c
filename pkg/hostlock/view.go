package hostlock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// View is a lock file as it is at one moment, for people.
type View struct {
	Path    string
	Held    bool    // the kernel says so, not the file
	PID     int     // who took it, as the kernel has it; 0: not known. It may be dead, and what it started have the lock
	Dead    bool    // the process PID is gone: a killed guard's delegate has the lock
	Holder  *Holder // what the file says, nil if nothing that can be read; where the lock isn't held, who was killed with it
	Waiting []int   // the processes that wait for it
}

// Look returns the lock files of a folder, by name; none where there is no such folder. It goes by /proc/locks, and takes
// nothing that anybody could want, but where that shows only some processes (in a pid namespace): a file that names a
// holder is then tried for a moment, as a reader.
func Look(dir string) ([]View, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	known := parseLocks(string(locks))
	var views []View
	for _, e := range entries {
		if e.Type().IsRegular() && strings.HasSuffix(e.Name(), ".lock") {
			views = append(views, look(filepath.Join(dir, e.Name()), known))
		}
	}
	return views, nil
}

func look(path string, known map[string]flocked) View {
	v := View{Path: path, Holder: readHolder(path)}
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil {
		return v
	}
	is := known[lockName(&st)]
	v.Held, v.PID, v.Waiting = is.held, is.pid, is.waiting
	if v.Held {
		v.Dead = v.PID > 0 && dead(v.PID, 0)
	} else if v.Holder != nil {
		v.Held = heldUnseen(path)
	}
	return v
}

// heldUnseen tries a lock of which /proc/locks says nothing.
func heldUnseen(path string) bool {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd) // unlocks
	return unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB) == unix.EWOULDBLOCK
}

// flocked is what the kernel says of a file's flock.
type flocked struct {
	held    bool
	pid     int
	waiting []int
}

// lockName is how /proc/locks names a file.
func lockName(st *unix.Stat_t) string {
	dev := uint64(st.Dev)
	return fmt.Sprintf("%02x:%02x:%d", unix.Major(dev), unix.Minor(dev), st.Ino)
}

// parseLocks reads lines such as "1: FLOCK  ADVISORY  WRITE 4711 00:19:815 0 EOF", and of who waits for that one
// "1: -> FLOCK  ADVISORY  WRITE 4712 00:19:815 0 EOF".
func parseLocks(text string) map[string]flocked {
	known := map[string]flocked{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		waits := len(f) > 1 && f[1] == "->"
		if waits {
			f = slices.Delete(f, 1, 2)
		}
		if len(f) < 6 || f[1] != "FLOCK" {
			continue
		}
		pid, err := strconv.Atoi(f[4])
		if err != nil {
			continue
		}
		is := known[f[5]]
		if waits {
			is.waiting = append(is.waiting, pid)
		} else {
			is.held, is.pid = true, pid
		}
		known[f[5]] = is
	}
	return known
}
