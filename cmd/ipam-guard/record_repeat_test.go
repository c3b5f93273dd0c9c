package main_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// everyLaterCall makes the calls that may release what is owed, and in which
// these attachments, all eth0, are alive.
func everyLaterCall(t *testing.T, n *guardtest.Node, living ...string) {
	t.Helper()
	come(t, n, "l1", "l2", "l1")
	n.Run(t, "GC", "", gcOf(living...)).OK(t)
	come(t, n, "l3", "l1")
}

// killedInTheQueue has the guard of an ADD killed while it waits for the lock.
func killedInTheQueue(t *testing.T, n *guardtest.Node, container string) {
	t.Helper()
	lock := n.LockPath("delegate-fake")
	release := n.HoldLock(t, lock, time.Hour)
	p := n.Start(t, "ADD", container, ask(nil, nil))
	awaitQueue(t, p, lock)
	p.Kill()
	if r := p.Wait(t); r.Signal != syscall.SIGKILL {
		t.Fatalf("have %+v", r)
	}
	release()
}

// Case 60, first part: an ADD is repeated for a living attachment and its guard
// is killed while it waits for the lock. The address outlives every later call.
func TestRepeatedADDKilledInTheQueue(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	n.Run(t, "ADD", "c1", ask(nil, nil)).OK(t)
	before := filesOf(t, n.StateDir)
	killedInTheQueue(t, n, "c1")
	wantSame(t, before, filesOf(t, n.StateDir))
	everyLaterCall(t, n, "c1")
	n.Run(t, "GC", "", gcOf()).OK(t) // a wrong list: its netns is there
	wantLeases(t, n, "c1/eth0")
	wantStates(t, n, "c1/eth0 attached")
	n.Run(t, "ADD", "c1", ask(Script{"ADD": "alloc-same"}, nil)).OK(t)
	if have := len(callsOf(t, n, "DEL", "c1")); have != 0 {
		t.Errorf("%d DELs", have)
	}
	n.Run(t, "DEL", "c1", ask(nil, nil)).OK(t)
	wantLeases(t, n)
	wantStates(t, n)
}

// Case 60, second part: as whereabouts does, the repeated ADD is given the same
// address, but then it fails: by a timeout, an error or a SIGKILL. It isn't
// rolled back.
func TestRepeatedADDThatFails(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]string{
		"times out": "sleep 1h", "fails": fail(999, "etcd is away"), "prints junk": `print "junk"`, "is killed": "touch here; waitfile never",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := guardtest.New(t)
			o := ask(nil, Object{"timeout": Object{"add": "2s"}})
			n.Run(t, "ADD", "c1", o).OK(t)
			before := filesOf(t, n.StateDir)
			n.SetScript(t, Script{"ADD": "alloc-same; " + end})
			if name == "is killed" {
				o = ask(nil, nil)
				p := n.Start(t, "ADD", "c1", o)
				n.AwaitCalls(t, "ADD", 2)
				p.Kill()
				p.Wait(t)
			} else {
				n.Run(t, "ADD", "c1", o).Error(t)
			}
			wantCalls(t, n, "ADD ADD")
			wantSame(t, before, filesOf(t, n.StateDir))
			n.SetScript(t, Script{"GC": "gc"})
			everyLaterCall(t, n, "c1")
			wantLeases(t, n, "c1/eth0")
			wantStates(t, n, "c1/eth0 attached")
			n.Run(t, "DEL", "c1", o).OK(t)
			wantLeases(t, n)
		})
	}
}

// Case 60, third part: the netns was replaced in the same boot, a restart
// without a DEL. The new one is what counts.
func TestRepeatedADDInAnotherNetns(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		again func(t *testing.T, n *guardtest.Node) guardtest.Opts // for the second ADD
		dels  int                                                  // before it: the first one is released
	}{
		"at the same path": {func(t *testing.T, n *guardtest.Node) guardtest.Opts {
			anyNetns(t, n, "c1", "second")
			return ask(Script{"ADD": "alloc-once"}, nil)
		}, 1},
		"at another path, the first is gone": {func(t *testing.T, n *guardtest.Node) guardtest.Opts {
			anyNetns(t, n, "c1-again", "second")
			n.SetNetns(t, "c1", "")
			o := ask(Script{"ADD": "alloc-once"}, nil)
			o.Netns = n.Netns("c1-again")
			return o
		}, 1},
		"at another path, the first is gone later": {func(t *testing.T, n *guardtest.Node) guardtest.Opts {
			anyNetns(t, n, "c1-again", "second")
			o := ask(Script{"ADD": "alloc-same"}, nil)
			o.Netns = n.Netns("c1-again")
			return o
		}, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := guardtest.New(t)
			anyNetns(t, n, "c1", "first")
			n.Run(t, "ADD", "c1", ask(nil, nil)).OK(t)
			o := tt.again(t, n)
			n.Run(t, "ADD", "c1", o).OK(t)
			if have := len(callsOf(t, n, "DEL", "c1")); have != tt.dels {
				t.Errorf("%d DELs", have)
			}
			if o.Netns != "" {
				n.SetNetns(t, "c1", "") // the first
			}
			n.Run(t, "GC", "", gcOf()).OK(t) // a wrong list: the second one lives
			everyLaterCall(t, n)
			wantLeases(t, n, "c1/eth0")
			wantStates(t, n, "c1/eth0 attached")

			n.SetNetns(t, "c1-again", "")
			n.SetNetns(t, "c1", "")
			n.Run(t, "GC", "", gcOf()).OK(t)
			wantLeases(t, n)
			wantStates(t, n)
			n.NoOverlap(t)
		})
	}
}

// Case 60, fourth part: a pod without a record, and its repeated ADD dies in the
// queue. Nothing is released: the delegate was never asked.
func TestADDWithoutARecordKilledInTheQueue(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	n.SetNetns(t, "c1", "/proc/self/ns/net")
	n.Run(t, "ADD", "c1", bare(n, nil)).OK(t)
	killedInTheQueue(t, n, "c1")
	wantStates(t, n, "c1/eth0 adding")
	everyLaterCall(t, n, "c1")
	if have := len(callsOf(t, n, "DEL", "c1")); have != 0 {
		t.Errorf("%d DELs", have)
	}
	wantLeases(t, n, "c1/eth0")
	wantStates(t, n)
	n.Run(t, "DEL", "c1", ask(nil, nil)).OK(t)
	wantLeases(t, n)
}
