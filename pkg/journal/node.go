package journal

import (
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Node is what tells one boot and one mount namespace from another.
type Node struct {
	Boot  string // boot id; "" if not known
	MntNS uint64 // inode of this process's mount namespace; 0 if not known
}

// Here returns this process's node.
func Here() Node {
	return Node{Boot: strings.TrimSpace(first("/proc/sys/kernel/random/boot_id")), MntNS: mntns()}
}

// first returns what one read of a file gives.
func first(path string) string {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	var buf [64]byte
	n, _ := unix.Read(fd, buf[:])
	return string(buf[:max(n, 0)])
}

// mntns is the inode of our mount namespace: mnt:[4026531841].
func mntns() uint64 {
	var st unix.Stat_t
	if unix.Stat("/proc/self/ns/mnt", &st) != nil {
		return 0
	}
	return st.Ino
}

// Uptime is milliseconds since boot, as records hold times. It stands still for nobody: not for a
// suspended node, nor for a wall clock that jumps.
func Uptime() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return ts.Nano() / int64(time.Millisecond)
}

// Place notes a network namespace.
func (n Node) Place(path string) Place {
	p := Place{Path: path, MntNS: n.MntNS, Boot: n.Boot}
	var st unix.Stat_t
	if path != "" && unix.Stat(path, &st) == nil {
		p.Dev, p.Inode = uint64(st.Dev), st.Ino
	}
	return p
}

// NetnsGone says whether a record's network namespace is gone: the node was
// booted since, the runtime said so, or in the mount namespace where the path
// was noted it is missing, is no namespace any more, or another one. All else
// is unknown, and unknown is not gone.
func (n Node) NetnsGone(r *Record) bool {
	p := r.Netns
	if r.Gone || p.Boot != "" && n.Boot != "" && p.Boot != n.Boot {
		return true
	}
	if p.Path == "" || p.MntNS == 0 || p.MntNS != n.MntNS {
		return false
	}
	var st unix.Stat_t
	if err := unix.Stat(p.Path, &st); err != nil {
		return err == unix.ENOENT || err == unix.ENOTDIR
	}
	return p.Inode != 0 && (uint64(st.Dev) != p.Dev || st.Ino != p.Inode)
}

// By says who wants to release a record.
type By int

// The three who may.
const (
	Anyone    By = iota // a call for another attachment
	Its                 // an ADD of its own key, or a GC that names it invalid
	ItsOwnDEL           // a DEL of its own key
)

// patience is how long an attachment's netns must have been gone before anyone
// may release it. CRI-O never sends the DEL of a pod's second network if the
// first one took its minute.
const patience = 10 * time.Minute

// Releasable says whether a record whose writer is gone may be released.
func (n Node) Releasable(r *Record, by By) bool {
	switch {
	case by == ItsOwnDEL, r.State == Adding, r.State == Releasing && r.Owed == Now:
		return true
	case r.State == Releasing:
		return by == Its || n.NetnsGone(r)
	case by == Its:
		return n.NetnsGone(r)
	}
	return n.goneLong(r)
}

// goneLong goes by a note of this boot: a clock of another one says nothing.
func (n Node) goneLong(r *Record) bool {
	return r.GoneSince > 0 && r.Boot == n.Boot && Uptime()-r.GoneSince >= patience.Milliseconds() && n.NetnsGone(r)
}

// Backoff returns when a record is due again after so many failed releases in
// this boot: after 1 s, doubling to 5 minutes.
func Backoff(tries int) int64 {
	wait := time.Second
	for ; tries > 1 && wait < 5*time.Minute; tries-- {
		wait *= 2
	}
	return Uptime() + min(wait, 5*time.Minute).Milliseconds()
}
