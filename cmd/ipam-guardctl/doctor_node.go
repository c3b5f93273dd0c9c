package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipam-guard/ipam-guard/pkg/journal"
)

// lookAtFolders: those for records must last, all must be writable and local.
func (d *doctor) lookAtFolders() {
	var state, locks, logs []string
	for _, s := range d.settings() {
		state, locks = append(state, d.at(s.StateDir)), append(locks, d.at(s.LockDir))
		if s.Log.File != "" {
			logs = append(logs, d.at(filepath.Dir(s.Log.File)))
		}
	}
	for _, dir := range once(state) {
		d.lookAtFolder("records", dir, "stateDir")
		there := journal.Journal{Dir: existing(dir)}
		if err := there.Lasting(); err != nil {
			d.find("folder", err.Error(), "after a reboot nobody knows what must be released; a defer answers with the error instead",
				d.editSettings("set stateDir to a folder on a disk, or mount one at "+dir))
		}
	}
	for _, dir := range once(locks) {
		d.lookAtFolder("locks", dir, "lockDir")
	}
	for _, dir := range once(logs) {
		d.lookAtFolder("log", dir, "log.file")
	}
}

func (d *doctor) editSettings(text string) string {
	return "${EDITOR:-vi} " + d.nodeFile + "   # " + text
}

// networked are the file systems on which locks and appends may not do what they do
// on a local one.
var networked = map[int64]string{
	0x6969: "NFS", 0xff534d42: "CIFS", 0xfe534d42: "SMB", 0x00c36400: "Ceph", 0x65735546: "FUSE", 0x01021997: "9p",
}

func (d *doctor) lookAtFolder(what, dir, key string) {
	there := existing(dir)
	where := dir
	if there != dir {
		where += " (not there yet)"
	}
	var st unix.Statfs_t
	if err := unix.Statfs(there, &st); err != nil {
		d.unseen("folder", &os.PathError{Op: "statfs", Path: there, Err: err})
		return
	}
	elsewhere := d.editSettings(fmt.Sprintf("set %s to a folder on a local disk", key))
	j := journal.Journal{Dir: dir}
	switch err := j.Writable(); {
	case err != nil && os.Geteuid() != 0:
		d.unseen("folder", err)
	case err != nil:
		d.find("folder", fmt.Sprintf("%s in %s: %v", what, dir, err), because[what], "mount -o remount,rw "+mountOf(dir))
	case networked[int64(st.Type)] != "": //nolint:unconvert // 32 bits on some machines
		d.find("folder", fmt.Sprintf("%s in %s, which is on %s", what, dir, networked[int64(st.Type)]), //nolint:unconvert // as above
			"locks of other nodes, or of none, count there; appended lines get lost", elsewhere)
	case st.Bavail == 0 || st.Files > 0 && st.Ffree == 0:
		d.find("folder", fmt.Sprintf("%s in %s: no room on that file system", what, dir), because[what], "df -h "+there+" && df -i "+there)
	default:
		d.ok("folder", "%s in %s: writable, %d MiB free", what, where, st.Bavail*uint64(st.Bsize)>>20)
	}
}

// because says what it means that a folder can't be written.
var because = map[string]string{
	"records": "ADDs fail with code 5 (records.onUnavailable), and a DEL that fails is on nobody's list",
	"locks":   "a lock that was not there yet can't be made, then ADDs and DELs fail with code 5 (lock.onUnavailable); of others nobody can tell who holds them",
	"log":     "no call fails for it, but there is no log",
}

// lookAtRecords returns all records.
func (d *doctor) lookAtRecords() []held {
	all, err := d.tool.records(d.recordOptions, false)
	if err != nil {
		d.unseen("records", err)
	}
	var c recordCount
	gone, stuck, late := 0, 0, 0
	most, last := 0, ""
	for _, h := range all {
		c.add(h)
		switch {
		case h.State == journal.Attached && h.NetnsGone && !h.Busy:
			gone++
		case h.Pending() && h.Tries >= 5:
			if stuck++; h.Tries > most {
				most, last = h.Tries, h.LastError
			}
		case h.Pending() && h.Releasable && h.wait() < -10*time.Minute:
			late++
		}
	}
	d.ok("records", "%d attached, %d adding, %d releasing", c.Attached, c.Adding, c.Releasing)
	finding := func(n int, what, why, command string) {
		if n > 0 {
			d.find("records", count(n, "record")+" "+what, why, command)
		}
	}
	finding(c.Unreadable, "can't be read", "the DEL of such an attachment goes by what the runtime sends", "ipam-guardctl pending   # lists them, forget sets them aside")
	finding(c.Newer, "of a newer version", "this one leaves them alone, and what they owe", "ipam-guardctl version   # and install the newer one that wrote them")
	finding(stuck, fmt.Sprintf("failed to be released, up to %d times: %s", most, oneLine(last)),
		"those addresses are taken, and nobody has them", "ipam-guardctl replay --all")
	finding(late, "due for more than ten minutes", "no call for another pod comes to release them", "ipam-guardctl replay --all")
	finding(gone, "of attachments whose network namespace is gone", "their DEL never came", "ipam-guardctl replay --all   # and again ten minutes later")
	for _, dir := range d.dirs() {
		if aside, _ := os.ReadDir(filepath.Join(dir, "aside")); len(aside) > 0 {
			d.find("records", count(len(aside), "record")+" set aside in "+dir, "they could not be read; what they owed may be leaked",
				"ipam-guardctl audit   # then rm -r "+filepath.Join(dir, "aside"))
		}
	}
	return all
}

// lookAtTimes adds up what a pod's networks may take.
func (d *doctor) lookAtTimes(all []held) {
	networks, by := d.networks, "as you say"
	if networks == 0 {
		networks, by = 1, "as the records have it"
		per := map[string]int{}
		for _, h := range all {
			per[h.Container]++
			networks = max(networks, per[h.Container])
		}
	}
	if len(d.guards) == 0 {
		d.ok("times", "no guard in a configuration that counts")
		return
	}
	found := false
	for _, l := range limits {
		if l.runtime != "" && !d.has(l.runtime) {
			continue
		}
		var sum time.Duration
		for _, g := range d.guards {
			sum += g.settings.Deadline.Of(l.verb)
		}
		if sum *= time.Duration(networks); sum <= l.limit {
			continue
		}
		found = true
		fits := (l.limit / time.Duration(networks*len(d.guards))).Truncate(time.Second)
		key := strings.ToLower(l.verb)
		d.find("times", fmt.Sprintf("%s of a pod with %s may take %s", l.verb, count(networks, "network"), sum), l.whose,
			d.editSettings(fmt.Sprintf(`{"defaults": {"deadline": {%q: %q}, "timeout": {%q: %q}}}`, key, fits, key, min(fits-2*time.Second, d.guards[0].settings.Timeout.Of(l.verb)))))
	}
	if !found {
		d.ok("times", "deadlines fit what runtimes allow, for %s (%s)", count(networks, "network"), by)
	}
}

// lookAtClock: records go by the time since boot, people and logs by the clock.
func (d *doctor) lookAtClock(all []held) {
	here := journal.Here()
	up := time.Duration(journal.Uptime()) * time.Millisecond
	if here.Boot == "" {
		d.find("clock", "/proc/sys/kernel/random/boot_id can't be read", "records of before a reboot look like those of now, and are never released for it",
			"ls -l /proc/sys/kernel/random/boot_id")
	} else {
		d.ok("clock", "%s, boot %s, up for %s", time.Now().UTC().Format(time.RFC3339), here.Boot, up.Round(time.Second))
	}
	ahead := 0
	for _, h := range all {
		if made, err := time.Parse(time.RFC3339, h.Created); err == nil && time.Until(made) > time.Minute {
			ahead++
		}
	}
	if ahead > 0 {
		d.find("clock", count(ahead, "record")+" made in the future, by the clock", "the clock was set back: the log's times can't be trusted; releases don't go by it",
			"timedatectl set-ntp true")
	}
}
