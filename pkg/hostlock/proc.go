package hostlock

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// MarkEnv is the variable that marks everything below a guard. In the delegate's environment its value is Mark().
const MarkEnv = "IPAM_GUARD_ABOVE"

// Mark names this process: "<pid>:<start>", start being field 22 of /proc/self/stat, 0 where /proc is missing.
func Mark() string {
	pid := os.Getpid()
	return strconv.Itoa(pid) + ":" + strconv.FormatUint(startOf(pid), 10)
}

// process is this process as others see it in /proc. pidns is 0 if there is no /proc, or one of another pid namespace,
// whose pids mean other processes.
type process struct {
	pid   int
	start uint64
	pidns uint64
}

func whoami() process {
	p := process{pid: os.Getpid()}
	if p.start = startOf(p.pid); p.start != 0 {
		p.pidns = pidns(p.pid)
	}
	return p
}

// startOf returns when this process was started, 0 if /proc doesn't tell.
func startOf(pid int) uint64 {
	st, err := readStat("self")
	if err != nil || st.pid != pid {
		return 0
	}
	return st.start
}

// stat is what we need of /proc/PID/stat.
type stat struct {
	pid   int
	comm  string
	state byte
	start uint64
}

var errStat = errors.New("/proc/PID/stat: unexpected content")

func readStat(pid string) (st stat, err error) {
	var buf [1024]byte
	b, err := readShort("/proc/"+pid+"/stat", buf[:])
	if err != nil {
		return stat{}, err
	}
	// comm may itself contain spaces and parentheses.
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 1 || end < open || len(b) < end+3 {
		return stat{}, errStat
	}
	st = stat{comm: string(b[open+1 : end]), state: b[end+2]}
	if st.pid, err = strconv.Atoi(string(bytes.TrimSpace(b[:open]))); err != nil {
		return stat{}, errStat
	}
	rest := b[end+2:] // from field 3 on
	for range 22 - 3 {
		_, rest, _ = bytes.Cut(rest, []byte{' '})
	}
	start, _, _ := bytes.Cut(rest, []byte{' '})
	if st.start, err = strconv.ParseUint(string(start), 10, 64); err != nil {
		return stat{}, errStat
	}
	return st, nil
}

// readShort reads what fits of a file of /proc: half the system calls of os.ReadFile, on every call's way.
func readShort(path string, buf []byte) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, buf)
	if err != nil {
		return nil, err
	}
	return buf[:n], nil
}

// dead says whether there is no process any more with that pid and start. In doubt there is.
func dead(pid int, start uint64) bool {
	if pid <= 0 {
		return false
	}
	st, err := readStat(strconv.Itoa(pid))
	if err != nil {
		// /proc may hide other users' processes; the kernel doesn't.
		return errors.Is(unix.Kill(pid, 0), unix.ESRCH)
	}
	if st.state == 'Z' || st.state == 'X' {
		return true // killed, and its parent hasn't reaped it yet
	}
	return start != 0 && st.start != start
}

// pidns returns the inode of a process's pid namespace, 0 if that can't be told.
func pidns(pid int) uint64 {
	var st unix.Stat_t
	if unix.Stat("/proc/"+strconv.Itoa(pid)+"/ns/pid", &st) != nil {
		return 0
	}
	return st.Ino
}

// above returns the guard that a process's environment names, and whether it names one.
func above(env []byte) (guard int, start uint64, ok bool) {
	for v := range bytes.SplitSeq(env, []byte{0}) {
		if mark, found := bytes.CutPrefix(v, []byte(MarkEnv+"=")); found {
			p, s, _ := strings.Cut(string(mark), ":")
			guard, err1 := strconv.Atoi(p)
			start, err2 := strconv.ParseUint(s, 10, 64)
			return guard, start, err1 == nil && err2 == nil
		}
	}
	return 0, 0, false
}

// environ reads a process's environment, in one read: in the middle of an execve there is none to be seen, and between
// two reads it may come to that. nil: it can't be read, or is empty.
func environ(pid int, buf []byte) []byte {
	env, err := readShort("/proc/"+strconv.Itoa(pid)+"/environ", buf)
	if err != nil {
		return nil
	}
	return env
}

// settledEnviron is environ for a process that may be in an execve: it waits a moment for something to be there.
func settledEnviron(pid int, buf []byte) []byte {
	for range 10 {
		if env := environ(pid, buf); len(env) > 0 {
			return env
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

// holds says whether a process holds the flock on that file: it has the file open, and the kernel lists the lock with
// that very descriptor. Having it open, or having inherited it before an unlock, isn't holding.
func holds(pid int, id fileID) bool {
	dir := "/proc/" + strconv.Itoa(pid)
	fds, err := os.ReadDir(dir + "/fdinfo")
	if err != nil {
		return false
	}
	for _, fd := range fds {
		b, err := os.ReadFile(dir + "/fdinfo/" + fd.Name())
		if err != nil || !listsFlock(b) {
			continue
		}
		// Only now the descriptor itself: to stat it may hang if it is on a file system that does.
		var st unix.Stat_t
		if unix.Stat(dir+"/fd/"+fd.Name(), &st) == nil && idOf(&st) == id {
			return true
		}
	}
	return false
}

// listsFlock looks for a line such as "lock:\t1: FLOCK  ADVISORY  WRITE 4711 00:19:815 0 EOF".
func listsFlock(fdinfo []byte) bool {
	for line := range bytes.Lines(fdinfo) {
		if rest, ok := bytes.CutPrefix(line, []byte("lock:")); ok {
			f := bytes.Fields(rest)
			if len(f) > 3 && string(f[1]) == "FLOCK" && string(f[3]) == "WRITE" {
				return true
			}
		}
	}
	return false
}
