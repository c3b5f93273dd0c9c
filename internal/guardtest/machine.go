package guardtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipam-guard/ipam-guard/internal/fakeipam/record"
)

// Netns is where a container's network namespace is mounted. The first ADD
// puts it there, the test's own namespace unless SetNetns said otherwise.
func (n *Node) Netns(container string) string {
	return filepath.Join(n.Dir, "netns", container)
}

// SetNetns makes the container's netns lead to another one, or, with "", go.
func (n *Node) SetNetns(t testing.TB, container, target string) {
	t.Helper()
	path := n.Netns(container)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if rm := os.Remove(path); err == nil && !errors.Is(rm, os.ErrNotExist) {
		err = rm
	}
	if err == nil && target != "" {
		err = os.Symlink(target, path)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (n *Node) netns(t testing.TB, verb, container string) string {
	t.Helper()
	path := n.Netns(container)
	if _, err := os.Lstat(path); err != nil && verb == "ADD" && container != "" {
		n.SetNetns(t, container, fmt.Sprintf("/proc/%d/ns/net", os.Getpid()))
	}
	return path
}

// NewNetns starts a process in a network namespace of its own and returns the
// namespace's path; end ends both. Without root that takes user namespaces.
func (n *Node) NewNetns(t testing.TB) (path string, end func()) {
	t.Helper()
	cmd := exec.Command(filepath.Join(n.Bin, "fake"), "hold", "1h")
	cmd.Dir = n.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
	}
	err := cmd.Start()
	if errors.Is(err, unix.EPERM) && os.Geteuid() != 0 {
		t.Skip("a network namespace takes root here: this machine lets nobody else make user namespaces")
	}
	if err != nil {
		t.Fatalf("a network namespace can't be had: %v", err)
	}
	end = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Cleanup(end)
	return fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid), end
}

// LockPath is the lock file of a scope: delegate-fake, network-testnet, host.
func (n *Node) LockPath(name string) string { return filepath.Join(n.LockDir, name+".lock") }

// HoldLock takes flock on a path, making the file if need be, and gives it back
// after d or when release is called, whichever comes first.
func (n *Node) HoldLock(t testing.TB, path string, d time.Duration) (release func()) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	fd := int(f.Fd())
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	release = sync.OnceFunc(func() {
		// Explicit: a child that is being started may have the descriptor.
		_ = unix.Flock(fd, unix.LOCK_UN)
		_ = f.Close()
	})
	time.AfterFunc(d, release)
	t.Cleanup(release)
	return release
}

// Pids are the children that the delegate left with `fork` and `daemon`.
func (n *Node) Pids(t testing.TB) []int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(n.FakeDir, "pids"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var pids []int
	for _, f := range strings.Fields(string(data)) {
		pid, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// Alive tells whether a process runs; one that is dead but not reaped doesn't.
func Alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	// The name in parentheses may hold anything: look after the last one.
	_, state, _ := strings.Cut(string(stat[strings.LastIndex(string(stat), ")"):]), " ")
	return !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}

// cleanUp ends whatever still runs on this node and reports faulty scripts that
// no test has noticed.
func (n *Node) cleanUp(t testing.TB) {
	end := time.Now().Add(10 * time.Second)
	for n.killAll() > 0 && time.Now().Before(end) {
		time.Sleep(2 * time.Millisecond)
	}
	calls, err := record.Read(n.FakeDir)
	if err != nil {
		t.Error(err)
	}
	for _, c := range calls {
		if c.Broken != "" {
			t.Errorf("the script of call %d, %s, is broken: %s", c.N, c.Verb, c.Broken)
		}
	}
}

// killAll kills every process that runs a binary of this node or was started
// in its folder, and says how many there were.
func (n *Node) killAll() int {
	found := 0
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || !n.ours(pid) {
			continue
		}
		p, err := os.FindProcess(pid)
		if err != nil {
			continue
		}
		// Now that there is a pidfd, what is looked at is what is killed.
		if n.ours(pid) && p.Kill() == nil {
			found++
		}
		_ = p.Release()
	}
	return found
}

func (n *Node) ours(pid int) bool {
	for _, link := range []string{"exe", "cwd"} {
		target, err := os.Readlink(fmt.Sprintf("/proc/%d/%s", pid, link))
		if err == nil && (target == n.Dir || strings.HasPrefix(target, n.Dir+"/")) {
			return Alive(pid)
		}
	}
	return false
}
