package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ipam-guard/ipam-guard/pkg/journal"
)

// process is one of the node, as far as it can be seen from here.
type process struct {
	proc string // /proc
	pid  int
	comm string
}

func (p process) path(name string) string { return p.proc + "/" + strconv.Itoa(p.pid) + "/" + name }

func (p process) String() string { return fmt.Sprintf("%d %s", p.pid, printable(p.comm)) }

func processes(proc string) []process {
	entries, _ := os.ReadDir(proc) // without /proc there are none to be seen
	var all []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		p := process{proc: proc, pid: pid}
		comm, err := os.ReadFile(p.path("comm"))
		if err != nil {
			continue
		}
		p.comm = strings.TrimSpace(string(comm))
		all = append(all, p)
	}
	return all
}

// inNetns are the first processes in a record's network namespace, where that is
// the one of its ADD.
func inNetns(place journal.Place) []string {
	if place.Inode == 0 {
		return nil
	}
	const most = 5
	var found []string
	for _, p := range processes("/proc") {
		var st unix.Stat_t
		if unix.Stat(p.path("ns/net"), &st) != nil || uint64(st.Dev) != place.Dev || st.Ino != place.Inode {
			continue
		}
		if len(found) == most {
			return append(found, "and more")
		}
		found = append(found, p.String())
	}
	return found
}

func joined(texts []string) string { return strings.Join(texts, ", ") }
