package main_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ipam-guard/ipam-guard/internal/fakeipam/record"
	"github.com/ipam-guard/ipam-guard/internal/guardtest"
	"github.com/ipam-guard/ipam-guard/pkg/journal"
)

// onFire is what a DEL says that fails for no reason that anybody knows.
const onFire = "the store is on fire"

var broken = Script{"DEL": fail(999, onFire)}

func journalOf(n *guardtest.Node) *journal.Journal {
	return &journal.Journal{Dir: n.StateDir, Node: journal.Here()}
}

// eachRecord calls f with every record of a node that nobody is at work on.
func eachRecord(t testing.TB, j *journal.Journal, f func(*journal.Entry)) {
	t.Helper()
	var keys []journal.Key
	j.Walk("", "", func(k journal.Key) { keys = append(keys, k) }, func(k journal.Key) {
		t.Fatalf("the record of %s can't be read, or is of a newer version", k)
	})
	for _, k := range keys {
		e := j.Try(k)
		if e == nil {
			t.Fatalf("the record of %s can't be had", k)
		}
		f(e)
		e.Close()
	}
}

// wantStates fails the test unless just these records are there, and nobody has
// them: "c1/eth0 attached", "c2/net1 releasing now", with @NETWORK after the
// interface where that isn't testnet.
func wantStates(t testing.TB, n *guardtest.Node, want ...string) {
	t.Helper()
	var have []string
	eachRecord(t, journalOf(n), func(e *journal.Entry) {
		s := e.Container + "/" + e.IfName
		if e.Network != "testnet" {
			s += "@" + e.Network
		}
		s += " " + string(e.State)
		if e.State == journal.Adding && e.Started {
			s += " started"
		}
		if e.State == journal.Releasing {
			s += " " + string(e.Owed)
		}
		have = append(have, s)
	})
	slices.Sort(have)
	if !slices.Equal(have, want) {
		t.Errorf("records %q, want %q", have, want)
	}
}

// reboot makes all records those of an earlier boot.
func reboot(t testing.TB, n *guardtest.Node) {
	t.Helper()
	j := journalOf(n)
	j.Boot = "0badb007-0000-4000-8000-000000000000"
	eachRecord(t, j, func(e *journal.Entry) {
		if err := e.Update(func(r *journal.Record) { r.Netns.Boot = j.Boot }); err != nil {
			t.Fatal(err)
		}
	})
}

// filesOf is all that is in a folder: name -> content, a link's target; folders
// with nothing. What is only a place in a list is left out.
func filesOf(t testing.TB, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() == "cursor" {
			return err
		}
		var text []byte
		switch name, _ := filepath.Rel(dir, path); {
		case d.Type() == fs.ModeSymlink:
			files[name], err = os.Readlink(path)
		case d.IsDir():
			files[name] = ""
		default:
			text, err = os.ReadFile(path)
			files[name] = string(text)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return files
}

// recordFile is where an attachment's record is, if it is the only one.
func recordFile(t testing.TB, n *guardtest.Node, container string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(n.StateDir, "records", container, "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("records of %s: %v, %v", container, files, err)
	}
	return files[0]
}

// owe attaches a container and has its DEL fail; what it holds is owed then.
func owe(t testing.TB, n *guardtest.Node, container string, o guardtest.Opts) {
	t.Helper()
	n.Run(t, "ADD", container, o).OK(t)
	n.SetScript(t, broken)
	n.Run(t, "DEL", container, o).Error(t)
	n.SetScript(t, nil)
}

// strand has the guard killed in an ADD whose delegate has just allocated.
func strand(t testing.TB, n *guardtest.Node, container string) {
	t.Helper()
	p := n.Start(t, "ADD", container, ask(Script{"ADD": "alloc; touch stranded; waitfile never"}, nil))
	flag := filepath.Join(n.FakeDir, "stranded")
	guardtest.Eventually(t, "the delegate", func() bool { return os.Remove(flag) == nil })
	p.Kill()
	p.Wait(t)
}

// come has other containers come and go: calls that may release what is owed.
func come(t testing.TB, n *guardtest.Node, containers ...string) {
	t.Helper()
	for _, c := range containers {
		n.Run(t, "ADD", c, ask(nil, nil)).OK(t)
		n.Run(t, "DEL", c, ask(nil, nil)).OK(t)
	}
}

// gcOf is a GC that names containers, all by eth0, and whose delegate does as
// host-local does.
func gcOf(containers ...string) guardtest.Opts {
	list := []any{}
	for _, c := range containers {
		list = append(list, Object{"containerID": c, "ifname": "eth0"})
	}
	o := ask(Script{"GC": "gc"}, nil)
	o.Conf.Version, o.Conf.Top = "1.1.0", Object{"cni.dev/valid-attachments": list}
	return o
}

// callsOf are the delegate's runs for a container.
func callsOf(t testing.TB, n *guardtest.Node, verb, container string) []record.Call {
	t.Helper()
	return slices.DeleteFunc(n.Calls(t, verb), func(c record.Call) bool { return c.Container != container })
}

// past leaves out the first few of a list of calls; there must be more.
func past(t testing.TB, skip int, calls []record.Call) []record.Call {
	t.Helper()
	if len(calls) <= skip {
		t.Fatalf("%d calls of the delegate, want more than %d", len(calls), skip)
	}
	return calls[skip:]
}

// smallDisk puts the node's records on a file system of 16 pages, and returns
// what fills it to the last byte and what makes room again. It is mounted in a
// mount namespace of its own, and got at by way of a process there.
func smallDisk(t testing.TB, n *guardtest.Node) (fill, clear func()) {
	t.Helper()
	dir := filepath.Join(n.Dir, "small")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", `mount -t tmpfs -o size=64k small "$1" && exec "$2" hold 1h`, "sh", dir, n.Bin+"/fake")
	cmd.Dir = n.Dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	err := cmd.Start()
	if errors.Is(err, unix.EPERM) && os.Geteuid() != 0 {
		t.Skip("a mount takes root here: this machine lets nobody else make user namespaces")
	}
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	n.StateDir = fmt.Sprintf("/proc/%d/root%s", cmd.Process.Pid, dir)
	guardtest.Eventually(t, "a small disk", func() bool {
		select {
		case <-ended:
			t.Fatalf("no small disk can be had: %s", stderr.String())
		default:
		}
		var st unix.Statfs_t
		return unix.Statfs(n.StateDir, &st) == nil && st.Type == unix.TMPFS_MAGIC
	})
	filler := filepath.Join(n.StateDir, "filler")
	fill = func() {
		t.Helper()
		if err := os.WriteFile(filler, bytes.Repeat([]byte{'x'}, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
			t.Fatalf("the disk isn't full: %v", err)
		}
	}
	clear = func() {
		t.Helper()
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
	}
	return fill, clear
}

// wide is a result that fits nowhere into a record of less than a page.
var wide = fmt.Sprintf("alloc; print %q", `{"cniVersion":"1.0.0","ips":[{"address":"10.9.0.2/16"}],"dns":{"search":["`+strings.Repeat("x", 8000)+`"]}}`)
