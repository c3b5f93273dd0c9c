package main_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
	"github.com/ipam-guard/ipam-guard/pkg/journal"
)

// lasts says whether records of this node outlive a reboot, so that a release
// can be deferred.
func lasts(n *guardtest.Node) bool { return (&journal.Journal{Dir: n.Dir}).Lasting() == nil }

// replays are those of a line of the log.
func replays(line Object) []any {
	list, _ := line["replays"].([]any)
	return list
}

// traced is the guard under strace, with what strace is to do. Where that isn't
// allowed the test is skipped.
func traced(t testing.TB, n *guardtest.Node, args string) string {
	t.Helper()
	if out, err := exec.Command("strace", "-f", "-o", os.DevNull, "true").CombinedOutput(); err != nil {
		t.Skipf("a call can't be made to fail here without strace and ptrace: %v %s", err, out)
	}
	return n.InstallScript(t, "traced", fmt.Sprintf("exec strace -f -qq --signal=none %s '%s'", args, n.Guard()))
}

// Case 9, with the record: a killed ADD leaves one that says that its delegate
// was started, and the DEL right after it ends both (cilium #9913, containerd
// #5438).
func TestSIGKILLKeepsTheRecord(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"before its alloc": "touch here; sleep 5s; alloc; touch late",
		"after its alloc":  "alloc; touch here; sleep 1h",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := guardtest.New(t)
			p := n.Start(t, "ADD", "c1", ask(Script{"ADD": script}, nil))
			awaitFile(t, n.FakeDir+"/here")
			p.Kill()
			p.Wait(t)
			wantStates(t, n, "c1/eth0 adding started")
			n.Run(t, "DEL", "c1", ask(nil, nil)).OK(t)
			n.NoOverlap(t)
			wantCalls(t, n, "ADD DEL")
			wantLeases(t, n)
			wantStates(t, n)
			if _, err := os.Stat(n.FakeDir + "/late"); err == nil || guardtest.Alive(n.Calls(t, "ADD")[0].PID) {
				t.Error("the delegate has outlived the guard")
			}
		})
	}
}

func awaitFile(t testing.TB, path string) {
	t.Helper()
	guardtest.Eventually(t, path, func() bool { _, err := os.Stat(path); return err == nil })
}

// Case 27: an ADD that is stopped, one way or the other, leaves its record, and
// the next call that replays releases it (cilium #9854).
func TestStoppedADDIsReleasedByTheNextCall(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"TERM", "KILL"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			n := guardtest.New(t)
			p := n.Start(t, "ADD", "c1", ask(Script{"ADD": "alloc; fork 1h; touch here; sleep 1h"}, nil))
			awaitFile(t, n.FakeDir+"/here")
			if how == "TERM" {
				awaitListening(t, n)
				p.Signal(syscall.SIGTERM)
				e := p.Wait(t).Error(t)
				if e.Code != 11 {
					t.Errorf("have %+v", e)
				}
				has(t, e.Details, "from its record")
				for _, pid := range append(n.Pids(t), n.Calls(t)[0].PID) {
					guardtest.Eventually(t, "death of the group", func() bool { return !guardtest.Alive(pid) })
				}
			} else {
				p.Kill()
				p.Wait(t)
			}
			wantStates(t, n, "c1/eth0 adding started")
			wantLeases(t, n, "c1/eth0")

			n.Run(t, "DEL", "c2", ask(nil, nil)).OK(t)
			wantLeases(t, n)
			wantStates(t, n)
			wantCalls(t, n, "ADD DEL DEL")
			if r := replays(lastLine(t, n)); len(r) != 1 || !strings.Contains(fmt.Sprint(r), "container c1") {
				t.Errorf("replays %v", r)
			}
			n.NoOverlap(t)
		})
	}
}

// Case 18, ADD: a delegate that isn't there allocated nothing (containerd #8785,
// #8774, kubeadm #587).
func TestMissingDelegateOnADD(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	if err := os.Remove(n.Bin + "/fake"); err != nil {
		t.Fatal(err)
	}
	has(t, n.Run(t, "ADD", "c1", ask(nil, nil)).Error(t).Msg, "fake", n.Bin)
	wantCalls(t, n, "")
	wantStates(t, n)
	// What an earlier ADD of the key allocated is not forgotten for that.
	n.Install(t, guardtest.Build(t, guardtest.Fake), "bin", "fake")
	n.Run(t, "ADD", "c1", ask(nil, nil)).OK(t)
	if err := os.Remove(n.Bin + "/fake"); err != nil {
		t.Fatal(err)
	}
	n.Run(t, "ADD", "c1", ask(nil, nil)).Error(t)
	wantStates(t, n, "c1/eth0 attached")
	wantLeases(t, n, "c1/eth0")
}

// Case 15: ten thousand releases that are due, of a delegate that can't do any
// (azure-container-networking #4458). No call does more than one of them, nor
// asks the kernel for more than what one costs.
func TestTenThousandPending(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	n.Install(t, guardtest.Build(t, guardtest.Fake), "bin", "gone")
	of := func(delegate string) guardtest.Opts {
		return guardtest.Opts{Conf: guardtest.Conf{Delegate: Object{"type": delegate}}}
	}
	trace := filepath.Join(n.Dir, "trace")
	binary := tracedIfAllowed(t, n, trace)
	// cost runs an ADD and a DEL and returns their system calls about files.
	cost := func(delegate, container string) (add, del int, took time.Duration) {
		o := of(delegate)
		o.Binary = binary
		took = n.Run(t, "ADD", container, o).OK(t).Took
		if r := replays(lastLine(t, n)); len(r) != 0 {
			t.Errorf("an ADD replayed %v", r)
		}
		add = linesOf(trace)
		took += n.Run(t, "DEL", container, o).OK(t).Took
		return add, linesOf(trace), took
	}
	n.Run(t, "ADD", "c0", of("gone")).OK(t)
	n.Run(t, "ADD", "c0", of("fake")).OK(t)
	emptyADD, emptyDEL, took := cost("gone", "before")

	const many = 10_000
	fill(t, n, "gone", many)
	refused := Script{"DEL": []string{"free", fail(999, refusedMsg)}}
	for _, tt := range []struct {
		delegate string
		replays  int
	}{{"gone", 1}, {"gone", 1}, {"fake", 0}} {
		n.SetScript(t, refused)
		had := len(n.Calls(t))
		add, del, now := cost(tt.delegate, "c1")
		r := replays(lastLine(t, n))
		if len(r) != tt.replays || len(n.Calls(t)) != had+2+tt.replays {
			t.Errorf("%s: %d runs of the delegate, replays %v, want %d", tt.delegate, len(n.Calls(t))-had, r, tt.replays)
		}
		t.Logf("%s: system calls of an ADD %d, with none pending %d; of a DEL %d and %d; both took %v and %v",
			tt.delegate, add, emptyADD, del, emptyDEL, now, took)
		if add > emptyADD+5 || del > emptyDEL+100 {
			t.Errorf("%s: too dear", tt.delegate)
		}
		if binary == "" && now > took+20*time.Second {
			t.Errorf("%s: %v, with none pending %v", tt.delegate, now, took)
		}
	}

	// Its binary is gone, too: then none of its calls replays anything.
	if err := os.Remove(n.Bin + "/gone"); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"ADD", "DEL"} {
		n.Run(t, verb, "c1", of("gone")).Error(t)
		if r := replays(lastLine(t, n)); len(r) != 0 {
			t.Errorf("%s: replays %v", verb, r)
		}
	}
}

// tracedIfAllowed is the guard with its system calls about files noted, or ""
// where nobody may do that.
func tracedIfAllowed(t *testing.T, n *guardtest.Node, trace string) (binary string) {
	if exec.Command("strace", "-f", "-o", os.DevNull, "true").Run() != nil {
		t.Log("no strace, or no ptrace: system calls are not counted, only time")
		return ""
	}
	return traced(t, n, "-o '"+trace+"' -e trace=%file,getdents64,flock")
}

func linesOf(path string) int {
	text, _ := os.ReadFile(path)
	return strings.Count(string(text), "\n")
}

// fill makes records that are due.
func fill(t testing.TB, n *guardtest.Node, delegate string, many int) {
	t.Helper()
	j := journalOf(n)
	netconf := n.Netconf(guardtest.Conf{Position: guardtest.Bare, Delegate: Object{"type": delegate}})
	for i := range many {
		k := journal.Key{Network: "testnet", Container: fmt.Sprintf("pending%d", i), IfName: "eth0", Delegate: delegate}
		e, _, err := j.Take(context.Background(), time.Time{}, k, &journal.Record{
			Facts:  journal.Facts{Netconf: netconf, Path: n.Bin, Binary: filepath.Join(n.Bin, delegate)},
			Status: journal.Status{State: journal.Releasing, Owed: journal.Now, Started: true},
		}, func(w string) { t.Error(w) })
		if err != nil {
			t.Fatal(err)
		}
		e.Close()
	}
}
