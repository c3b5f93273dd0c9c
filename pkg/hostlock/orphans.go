package hostlock

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// A guard that was killed leaves its delegate's processes behind, and the lock with them. That is as it should be
// while they work, since no other delegate may run beside them; but one that hangs would hang the node. So a waiter
// kills (SIGKILL) a process if all of this is true:
//
//   - it holds the lock (the kernel says so, not the file): a daemon that inherited the descriptor and outlived a
//     normal Unlock holds nothing, so it is safe whatever the file says;
//   - it belongs to a dead guard: its environment names a dead guard (MarkEnv), or names none and it is in the process
//     group that the dead holder noted;
//   - it is in this very pid namespace, is neither the waiter itself nor pid 1.

const (
	lookEvery  = time.Second
	lookAtMost = 8 * time.Second
)

// hunter looks for orphans on behalf of one waiter.
type hunter struct {
	path string
	self process
	warn func(string)
	gap  time.Duration
	buf  []byte // for environments
}

// look looks once and says when to look again. As long as a living holder is known that is cheap, and due each
// second. A search through all processes is due ever less often: many waiters may be at it.
func (h *hunter) look() time.Duration {
	var st unix.Stat_t
	if h.self.pidns == 0 || unix.Lstat(h.path, &st) != nil {
		return lookEvery
	}
	id, holder := idOf(&st), readHolder(h.path)
	if holder != nil && h.here(holder) && !dead(holder.PID, holder.Start) && holds(holder.PID, id) {
		h.gap = 0
	} else {
		h.search(id, holder)
	}
	h.gap = min(max(2*h.gap, lookEvery), lookAtMost)
	return h.gap
}

// here says whether the holder's pid means something in this pid namespace.
func (h *hunter) here(holder *Holder) bool { return holder.PIDNS == h.self.pidns }

// search kills the orphans that hold the lock.
func (h *hunter) search(id fileID, holder *Holder) {
	if holder != nil && !(h.here(holder) && dead(holder.PID, holder.Start)) {
		holder = nil // its process group says nothing then
	}
	if h.buf == nil {
		h.buf = make([]byte, 256<<10)
	}
	for _, pid := range processes() {
		// Cheap, and turns nearly everyone away.
		if pid > 1 && pid != h.self.pid && orphanOf(pid, environ(pid, h.buf), holder) != "" {
			h.kill(pid, id, holder)
		}
	}
}

// kill kills the process if it is an orphan that holds the lock. Whatever is found out after the pidfd was had is true
// of the process that gets the signal, or that process is gone.
func (h *hunter) kill(pid int, id fileID, holder *Holder) {
	send := func() error { return unix.Kill(pid, unix.SIGKILL) }
	if fd, err := unix.PidfdOpen(pid, 0); err == nil {
		defer unix.Close(fd)
		send = func() error { return unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) }
	} else if errors.Is(err, unix.ESRCH) {
		return
	}
	guard := orphanOf(pid, settledEnviron(pid, h.buf), holder)
	if guard == "" || pidns(pid) != h.self.pidns || !holds(pid, id) {
		return
	}
	st, _ := readStat(strconv.Itoa(pid))
	what := fmt.Sprintf("process %d (%q), left behind by the dead %s and holding the lock %s", pid, st.comm, guard, h.path)
	if err := send(); err != nil {
		h.warn(fmt.Sprintf("%s, can't be killed: %v", what, err))
		return
	}
	h.warn(what + ", killed")
}

// orphanOf names the dead guard that the process belongs to, "" if it doesn't belong to one. holder is a dead one or
// nil. The process's own environment outweighs what the file says: a living guard's delegate may have got the number
// of a process group that an old content names.
func orphanOf(pid int, env []byte, holder *Holder) string {
	if guard, start, ok := above(env); ok {
		switch {
		case !dead(guard, start):
			return ""
		case holder == nil || holder.PID != guard || holder.Start != start:
			return "guard (pid " + strconv.Itoa(guard) + ")"
		}
		return "guard (" + holder.String() + ")"
	}
	if holder != nil && holder.PGID > 1 {
		if pgid, err := unix.Getpgid(pid); err == nil && pgid == holder.PGID {
			return "guard (" + holder.String() + ")"
		}
	}
	return ""
}

// processes lists the pids in /proc.
func processes() (pids []int) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1) // what was read before an error counts
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
