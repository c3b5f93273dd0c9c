package jail

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// Process is one that lives in a jail, as seen from outside.
type Process struct {
	PID    int
	Name   string // of its program's file
	Folder string // that this is in, by its last name
}

// Processes are all that live in the jail, its first left out.
func (j *Jail) Processes(t testing.TB) []Process {
	t.Helper()
	ours := namespace(j.init.Process.Pid)
	if ours == "" {
		t.Fatal("the jail's first process is gone")
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var found []Process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == j.init.Process.Pid || namespace(pid) != ours || !guardtest.Alive(pid) {
			continue
		}
		if p, ok := look(pid); ok {
			found = append(found, p)
		}
	}
	return found
}

func namespace(pid int) string {
	name, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	if err != nil {
		return ""
	}
	return name
}

func look(pid int) (Process, bool) {
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return Process{}, false
	}
	return Process{
		PID: pid, Name: strings.TrimSuffix(filepath.Base(exe), " (deleted)"), Folder: filepath.Base(filepath.Dir(exe)),
	}, true
}

// Others are the processes in the jail but for those programs.
func (j *Jail) Others(t testing.TB, programs ...string) []Process {
	t.Helper()
	return slices.DeleteFunc(j.Processes(t), func(p Process) bool { return slices.Contains(programs, p.Name) })
}

// Netns counts the network namespaces that are mounted somewhere in the jail.
func (j *Jail) Netns(t testing.TB) (count int) {
	t.Helper()
	for line := range strings.Lines(j.mountinfo(t)) {
		if strings.Contains(line, " - nsfs ") && strings.Contains(line, " net:") {
			count++
		}
	}
	return count
}

// mounts are those below a folder, in the order in which they were made.
func (j *Jail) mounts(t testing.TB, below string) (points []string) {
	t.Helper()
	for line := range strings.Lines(j.mountinfo(t)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], below) {
			points = append(points, f[4])
		}
	}
	return points
}

func (j *Jail) mountinfo(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", j.init.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
