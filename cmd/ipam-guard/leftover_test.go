package main_test

import (
	"testing"
	"time"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// A grandchild that holds stdout, stderr and the lock's descriptor for a minute
// adds nothing: the runtime is answered, its pipes are closed, the lock is free
// (containerd and CRI-O wait for the end of these pipes).
func TestGrandchildHoldsEverything(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		verb, script string
		rc           int
		alive        bool // it goes on: the delegate has ended well
	}{
		"a good ADD":   {"ADD", "alloc; fork 1h", 0, true},
		"a good DEL":   {"DEL", "free; fork 1h", 0, true},
		"a good CHECK": {"CHECK", "fork 1h", 0, true},
		"a failed ADD": {"ADD", "alloc; fork 1h; " + fail(100, "no"), 1, true},
		"a hung ADD":   {"ADD", "alloc; fork 1h; sleep 1m", 1, false},
		"a hung DEL":   {"DEL", "fork 1h; sleep 1m", 1, false},
		"a hung CHECK": {"CHECK", "fork 1h; sleep 1m", 1, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := guardtest.New(t)
			settings := Object{"timeout": Object{"add": "2s", "del": "2s", "check": "2s"}, "retry": Object{"attempts": 1}}
			script := Script{tt.verb: tt.script}
			r := n.Run(t, tt.verb, "c1", ask(script, settings))
			if r.RC != tt.rc || r.Held || r.Took > 30*time.Second {
				t.Errorf("have %+v", r)
			}
			if !tt.alive && r.Took < 2*time.Second {
				t.Errorf("back after %v", r.Took)
			}
			pids := n.Pids(t)
			if len(pids) != 1 {
				t.Fatalf("grandchildren %v", pids)
			}
			if tt.alive && !guardtest.Alive(pids[0]) {
				t.Error("the grandchild is gone")
			}
			if !tt.alive {
				guardtest.Eventually(t, "death of the group", func() bool { return !guardtest.Alive(pids[0]) })
			}
			if tt.verb != "CHECK" {
				wantFree(t, n.LockPath("delegate-fake"))
			}
			if tt.verb == "ADD" && tt.rc != 0 {
				wantLeases(t, n)
			}
		})
	}
}

// Case 67: a daemon that the delegate starts lives on and holds no lock.
func TestDaemonOfTheDelegate(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	n.Run(t, "ADD", "c1", ask(Script{"ADD": "alloc; daemon 1h"}, nil)).OK(t)
	lock := n.LockPath("delegate-fake")
	wantFree(t, lock)
	daemon := n.Pids(t)[0]
	// Not even one who waits for the lock, and looks for orphans, harms it.
	release := n.HoldLock(t, lock, time.Hour)
	p := n.Start(t, "DEL", "c1", ask(nil, nil))
	awaitQueue(t, p, lock)
	time.Sleep(1500 * time.Millisecond) // it looks at once and then each second
	release()
	p.Wait(t).OK(t)
	if !guardtest.Alive(daemon) {
		t.Error("the daemon is gone")
	}
	wantLeases(t, n)
}

// The same below another guard and in bypass mode: no pipe of the runtime's
// gets into the delegate's hands.
func TestBypassHandsOutNoPipe(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	r := n.Run(t, "ADD", "c1", ask(Script{"ADD": "alloc; fork 1h"}, Object{"mode": "bypass"})).OK(t)
	if r.Held || r.Took > 30*time.Second {
		t.Errorf("have %+v", r)
	}
}
