package main_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// Case 43: however often, and by however many at once (kubernetes #20379,
// meshnet-cni #70).
func TestManyDELsOfOneKey(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	n.Run(t, "ADD", "c1", ask(nil, nil)).OK(t)
	for range 50 {
		n.Run(t, "DEL", "c1", ask(nil, nil)).OK(t)
		wantLeases(t, n)
	}
	wantStates(t, n)

	n.Run(t, "ADD", "c1", ask(nil, nil)).OK(t)
	var together []*guardtest.Proc
	for range 3 {
		together = append(together, n.Start(t, "DEL", "c1", ask(Script{"DEL": "sleep 100ms; free"}, nil)))
	}
	for _, p := range together {
		p.Wait(t).OK(t)
	}
	wantLeases(t, n)
	wantStates(t, n)

	add := n.Start(t, "ADD", "c1", ask(Script{"ADD": "alloc; waitfile go"}, nil))
	n.AwaitCalls(t, "ADD", 3)
	del := n.Start(t, "DEL", "c1", ask(nil, nil))
	awaitQueue(t, del, recordFile(t, n, "c1"))
	n.Touch(t, "go")
	add.Wait(t).OK(t)
	del.Wait(t).OK(t)
	wantLeases(t, n)
	wantStates(t, n)
	n.NoOverlap(t)
}

// Case 46: nothing piles up (azure-container-networking #4768).
func TestNothingPilesUp(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	n.InstallScript(t, "quick", `[ "$CNI_COMMAND" = ADD ] && echo '{"cniVersion":"1.1.0","ips":[{"address":"10.9.0.2/16"}]}'; exit 0`)
	o := guardtest.Opts{Conf: guardtest.Conf{Version: "1.1.0", Delegate: Object{"type": "quick"}}}
	n.Run(t, "ADD", "first", o).OK(t)
	n.Run(t, "DEL", "first", o).OK(t)
	before := filesOf(t, n.StateDir)
	// A shell calls them: it forks for a fraction of what that costs here.
	o.Binary = n.InstallScript(t, "loop", `conf=$(cat)
		for i in 1 2 3 4 5 6 7 8 9 10; do
			for verb in ADD STATUS DEL; do
				echo "$conf" | CNI_COMMAND=$verb "`+n.Guard()+`" >/dev/null || exit 1
			done
		done`)
	const all, atLeast = 1000, 100 // on a slow machine 20 s must do
	done, began := 0, time.Now()
	for ; done < all && (done < atLeast || time.Since(began) < 20*time.Second); done += 10 {
		n.Run(t, "ADD", "c"+strconv.Itoa(done), o).OK(t)
	}
	t.Logf("%d times ADD, STATUS and DEL", done)
	wantSame(t, before, filesOf(t, n.StateDir))
	wantStates(t, n)
}

// Case 67: a daemon that a delegate starts lives on and holds neither the host
// lock nor a record, in a replay as well.
func TestDaemonHoldsNoRecord(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	n.Run(t, "ADD", "c1", ask(Script{"ADD": "alloc; daemon 1h; fork 1h"}, nil)).OK(t)
	wantStates(t, n, "c1/eth0 attached") // each to be had
	n.SetScript(t, broken)
	n.Run(t, "DEL", "c1", ask(nil, nil)).Error(t)
	n.SetNetns(t, "c1", "")
	n.SetScript(t, Script{"DEL": "free; daemon 1h"})
	n.Run(t, "DEL", "other", ask(nil, nil)).OK(t)
	wantLeases(t, n)
	wantStates(t, n)
	pids := n.Pids(t)
	if len(pids) != 4 {
		t.Errorf("daemons %v", pids)
	}
	for _, pid := range pids {
		if !guardtest.Alive(pid) {
			t.Errorf("%d is gone", pid)
		}
		fds, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/fd/*")
		for _, fd := range fds {
			if to, _ := os.Readlink(fd); strings.HasPrefix(to, n.StateDir) {
				t.Errorf("%d has %s", pid, to)
			}
		}
	}
	wantFree(t, n.LockPath("delegate-fake"))
}
