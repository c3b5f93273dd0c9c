//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// pids are the processes that run a binary.
func pids(t testing.TB, binary string) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var found []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if err == nil && exe == binary && guardtest.Alive(pid) {
			found = append(found, pid)
		}
	}
	return found
}

// blockStore makes host-local wait, as it does for another of its kind.
func (m *machine) blockStore(t testing.TB, network string) (release func()) {
	t.Helper()
	return m.HoldLock(t, filepath.Join(m.dataDir(), network, "lock"), time.Minute)
}

// awaitHostLocal waits for a host-local other than not and returns its pid; at
// no time may there be two.
func (m *machine) awaitHostLocal(t testing.TB, not int) int {
	t.Helper()
	var pid int
	guardtest.Eventually(t, "a host-local that waits for its store", func() bool {
		running := pids(t, m.hostLocal())
		if len(running) > 1 {
			t.Fatalf("%d host-locals at once", len(running))
		}
		if len(running) == 1 && running[0] != not {
			pid = running[0]
		}
		return pid != 0
	})
	return pid
}

// Case 9, with the real host-local (cilium #9913, containerd #5438): the guard
// is killed while its delegate waits, and a DEL comes at once.
func TestCase9GuardKilledWhileHostLocalWaits(t *testing.T) {
	m := newMachine(t)
	release := m.blockStore(t, "pods")
	add := m.Start(t, "ADD", "pod", opts{Conf: m.conf(conf{Name: "pods"})})
	first := m.awaitHostLocal(t, 0)
	add.Kill()
	del := m.Start(t, "DEL", "pod", opts{Conf: m.conf(conf{Name: "pods"})})
	m.awaitHostLocal(t, first)
	release()
	del.Wait(t).OK(t)
	if left := m.reserved(t, "pods"); len(left) > 0 || guardtest.Alive(first) {
		t.Errorf("left: %v; first host-local alive: %t", left, guardtest.Alive(first))
	}
}

// Case 9: a delegate that sleeps and would allocate afterwards.
func TestCase9GuardKilledWhileTheDelegateRuns(t *testing.T) {
	n := guardtest.New(t)
	c := conf{Script: guardtest.Script{"ADD": "touch runs; sleep 5s; alloc"}}
	add := n.Start(t, "ADD", "pod", opts{Conf: c})
	delegate := n.AwaitCalls(t, "ADD", 1)[0].PID
	add.Kill()
	n.Run(t, "DEL", "pod", opts{Conf: c}).OK(t)
	n.NoOverlap(t)
	if left := n.Leases(t); len(left) > 0 || guardtest.Alive(delegate) {
		t.Errorf("left: %v; delegate alive: %t", left, guardtest.Alive(delegate))
	}
}

// Case 9, twin: the delegate is a shell script, and what sleeps is its child,
// which no parent-death signal reaches. It still holds the lock.
func TestCase9OrphanOfAScriptIsCleared(t *testing.T) {
	n := guardtest.New(t)
	n.InstallScript(t, "shell-ipam", filepath.Join(n.Bin, "fake")+"\nexit $?")
	c := conf{Delegate: object{"type": "shell-ipam"}, Script: guardtest.Script{"ADD": "sleep 1m; alloc"}}
	add := n.Start(t, "ADD", "pod", opts{Conf: c})
	orphan := n.AwaitCalls(t, "ADD", 1)[0].PID
	add.Kill()
	add.Wait(t)
	if !guardtest.Alive(orphan) {
		t.Fatal("the script's child is gone: this test shows nothing")
	}
	r := n.Run(t, "DEL", "pod", opts{Conf: c}).OK(t)
	n.NoOverlap(t)
	if left := n.Leases(t); len(left) > 0 || guardtest.Alive(orphan) {
		t.Errorf("left: %v; orphan alive: %t", left, guardtest.Alive(orphan))
	}
	if !strings.Contains(r.Stderr, strconv.Itoa(orphan)) {
		t.Errorf("nobody is told of the orphan %d: %s", orphan, r.Stderr)
	}
}

// What containerd does at its deadline: SIGKILL to bridge alone. The guard
// lives on, finds nobody to take the result, and gives the address back.
func TestBridgeKilledDuringAdd(t *testing.T) {
	n := newNetwork(t)
	list := n.conflist(t, conf{Name: "pods"})
	rt := n.container(t, "pod", "eth0")
	release := n.blockStore(t, "pods")
	ctx, kill := context.WithCancel(context.Background())
	defer kill()
	failed := make(chan error, 1)
	go func() {
		_, err := n.cni.AddNetworkList(ctx, list, rt)
		failed <- err
	}()
	n.awaitHostLocal(t, 0)
	kill()
	guardtest.Eventually(t, "the end of bridge", func() bool { return len(pids(t, filepath.Join(n.Bin, "bridge"))) == 0 })
	if len(pids(t, n.Guard())) != 1 {
		t.Fatal("the guard did not outlive bridge: this test shows nothing")
	}
	release()
	if err := <-failed; err == nil {
		t.Error("ADD succeeded without bridge")
	}
	guardtest.Eventually(t, "the end of the guard", func() bool { return len(pids(t, n.Guard())) == 0 })
	if left := n.reserved(t, "pods"); len(left) > 0 {
		t.Errorf("leaked: %v", left)
	}
}

func TestBridgeKilledDuringDel(t *testing.T) {
	n := newNetwork(t)
	list := n.conflist(t, conf{Name: "pods"})
	rt := n.container(t, "pod", "eth0")
	if _, err := n.cni.AddNetworkList(context.Background(), list, rt); err != nil {
		t.Fatal(err)
	}
	release := n.blockStore(t, "pods")
	ctx, kill := context.WithCancel(context.Background())
	defer kill()
	failed := make(chan error, 1)
	go func() { failed <- n.cni.DelNetworkList(ctx, list, rt) }()
	n.awaitHostLocal(t, 0)
	kill()
	guardtest.Eventually(t, "the end of bridge", func() bool { return len(pids(t, filepath.Join(n.Bin, "bridge"))) == 0 })
	release()
	if err := <-failed; err == nil {
		t.Error("DEL succeeded without bridge")
	}
	guardtest.Eventually(t, "the release of the address", func() bool { return len(n.reserved(t, "pods")) == 0 })
}
