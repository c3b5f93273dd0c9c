//go:build integration

package integration_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

const herd = 200

// herdOf starts a guard per container, all together.
func herdOf(t *testing.T, n *guardtest.Node, verb string, c conf) []*guardtest.Proc {
	t.Helper()
	n.Guard()
	procs := make([]*guardtest.Proc, herd)
	for i := range procs {
		procs[i] = n.Start(t, verb, fmt.Sprintf("pod-%03d", i), opts{Conf: c})
	}
	return procs
}

// 200 guards before a delegate of 50 ms. They wait longer than one delegate may
// run, the last one's delegate takes nearly all of its time, and all succeed.
func TestHerd(t *testing.T) {
	const timeout, deadline = 4 * time.Second, 110 * time.Second
	n := guardtest.New(t)
	script := slices.Repeat([]string{"alloc; sleep 50ms"}, herd-1)
	script = append(script, "alloc; sleep 3s")
	c := conf{
		Script: guardtest.Script{"ADD": script},
		Guard:  object{"timeout": object{"add": timeout.String()}, "deadline": object{"add": deadline.String()}},
	}
	for _, p := range herdOf(t, n, "ADD", c) {
		if r := p.Wait(t).OK(t); r.Took > deadline {
			t.Errorf("took %v", r.Took)
		}
	}
	n.NoOverlap(t)
	if have := len(n.Leases(t)); have != herd {
		t.Errorf("%d leases for %d pods", have, herd)
	}
	if have := len(n.Calls(t)); have != herd {
		t.Errorf("%d calls of the delegate", have)
	}
	var longest float64
	for _, l := range n.Log(t) {
		longest = max(longest, l["lock_wait_ms"].(float64))
	}
	if longest < float64(timeout.Milliseconds()) {
		t.Errorf("nobody waited longer than %v for the lock (%v ms at most): this test shows nothing", timeout, longest)
	}
	t.Logf("the last one waited %.1f s", longest/1000)
}

// The same behind one that hangs: each ends in time, says why, and is gone.
func TestHerdBehindAHolderThatHangs(t *testing.T) {
	const deadline = 12 * time.Second // 4 s of it are an attempt's and its grace's
	n := guardtest.New(t)
	holder := n.Start(t, "ADD", "holder", opts{Conf: conf{
		Script: guardtest.Script{"ADD": "ignore TERM; sleep 2m"},
		Guard:  object{"timeout": object{"add": "80s"}},
	}})
	n.AwaitCalls(t, "ADD", 1)
	c := conf{Guard: object{"timeout": object{"del": "3s"}, "deadline": object{"del": deadline.String()}}}
	for _, p := range herdOf(t, n, "DEL", c) {
		r := p.Wait(t)
		e := r.Error(t)
		if e.Code != 11 || r.Took > deadline {
			t.Errorf("code %d after %v, want 11 within %v", e.Code, r.Took, deadline)
		}
		for _, want := range []string{n.LockPath("delegate-fake"), "holder", fmt.Sprint(holder.Pid)} {
			if !strings.Contains(e.Msg+e.Details, want) {
				t.Errorf("no %q in %q, %q", want, e.Msg, e.Details)
			}
		}
	}
	if running := pids(t, n.Guard()); !slices.Equal(running, []int{holder.Pid}) {
		t.Errorf("still running: %v, want the holder %d alone", running, holder.Pid)
	}
	if calls := n.Calls(t, "DEL"); len(calls) > 0 {
		t.Errorf("%d DELs reached the delegate", len(calls))
	}
	holder.Kill()
	n.Run(t, "DEL", "pod-000", opts{Conf: c}).OK(t)
	n.NoOverlap(t)
}
