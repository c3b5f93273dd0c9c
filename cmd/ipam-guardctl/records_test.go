package main_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
	"github.com/ipam-guard/ipam-guard/pkg/chain"
	"github.com/ipam-guard/ipam-guard/pkg/journal"
)

func (n node) admin(t *testing.T) chain.Admin {
	t.Helper()
	return chain.Admin{
		Call: chain.Call{
			Env: []string{"FAKEIPAM_DIR=" + n.path("fake")}, Stderr: &bytes.Buffer{}, NodeFile: n.path("node-config.json"),
			Random: func() float64 { return 0 }, Self: os.Executable,
		},
		StateDir: n.path("state"), Warn: func(text string) { t.Log(text) },
	}
}

func (n node) leases(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir(n.path("fake", "leases"))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// What an administrator may do with a record: what a call for another attachment
// might, and by force what lives.
func TestAdmin(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(t, "net.d/10-pods.conflist", podsConf)
	guardedNode(t, n)
	a := n.admin(t)
	if all := a.Records(); len(all) != 0 {
		t.Fatalf("records before any ADD: %+v", all)
	}
	for _, pod := range []string{"one", "two", "three"} {
		n.plugin(t, "ADD", pod, "/proc/self/ns/net", true)
	}
	key := func(pod string) journal.Key {
		return journal.Key{Network: "pods", Container: pod, IfName: "eth0", Delegate: "host-local"}
	}
	if all := a.Records(); len(all) != 3 || all[0].Pending() || all[0].Releasable || all[0].State != journal.Attached {
		t.Fatalf("%+v", all)
	}

	// What lives is released by force only.
	if err := a.Release(t.Context(), key("one"), false); !errors.Is(err, chain.ErrNotYet) || n.leases(t) != 3 {
		t.Errorf("it lives: %v, %d leases", err, n.leases(t))
	}
	if err := a.Release(t.Context(), key("one"), true); err != nil || n.leases(t) != 2 {
		t.Errorf("by force: %v, %d leases", err, n.leases(t))
	}
	if err := a.Release(t.Context(), key("one"), true); !errors.Is(err, chain.ErrNoRecord) {
		t.Errorf("gone: %v", err)
	}

	// Why it could not, and that it was tried.
	n.write(t, "fake/script.json", `{"DEL": "exit 1 \"away\" 100"}`)
	n.plugin(t, "DEL", "two", "", false)
	tries := record(t, a, "two").Tries
	if err := a.Release(t.Context(), key("two"), false); err == nil || !strings.Contains(err.Error(), "away") {
		t.Errorf("failing: %v", err)
	}
	if r := record(t, a, "two"); !r.Pending() || !r.Releasable || r.Tries != tries+1 || r.LastError != "away" {
		t.Errorf("%+v, had %d tries", r, tries)
	}

	// It tries the host lock, and never queues for it.
	n.write(t, "fake/script.json", `{"DEL": "free"}`)
	lock, err := os.OpenFile(n.path("lock", "delegate-host-local.lock"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if err := a.Release(t.Context(), key("two"), false); err == nil || n.leases(t) != 2 {
		t.Errorf("the lock is held: %v, %d leases", err, n.leases(t))
	}
	_ = lock.Close()
	if err := a.Release(t.Context(), key("two"), false); err != nil || n.leases(t) != 1 {
		t.Errorf("well: %v, %d leases", err, n.leases(t))
	}

	// Given up: no DEL.
	if err := a.Forget(t.Context(), key("three")); err != nil || n.leases(t) != 1 || len(a.Records()) != 0 {
		t.Errorf("forgotten: %v, %d leases, %d records", err, n.leases(t), len(a.Records()))
	}
}

func record(t *testing.T, a chain.Admin, container string) chain.Held {
	t.Helper()
	for _, r := range a.Records() {
		if r.Container == container {
			return r
		}
	}
	t.Fatalf("no record of %s", container)
	return chain.Held{}
}

// A file that another changes between reading and writing is read again: his
// change stays, and ours is made.
func TestChangedMeanwhile(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	file := n.write(t, "net.d/10-pods.conflist", podsConf)
	folder, err := os.Open(filepath.Dir(file))
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	if err := unix.Flock(int(folder.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(n.path("tool", "ipam-guardctl"), "wrap", "--no-probe", file)
	cmd.Dir = n.dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// It opens the folder once it has read the file, and waits for the folder.
	guardtest.Eventually(t, "the tool to wait", func() bool {
		links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", cmd.Process.Pid))
		for _, link := range links {
			if to, _ := os.Readlink(link); to == filepath.Dir(file) {
				return true
			}
		}
		return !guardtest.Alive(cmd.Process.Pid)
	})
	n.write(t, "net.d/10-pods.conflist", strings.Replace(podsConf, `"bridge"`, `"macvlan"`, 1))
	if err := unix.Flock(int(folder.Fd()), unix.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if text := read(t, file); !strings.Contains(text, `"macvlan"`) || !strings.Contains(text, "ipam-guard") {
		t.Errorf("%s", text)
	}
}
