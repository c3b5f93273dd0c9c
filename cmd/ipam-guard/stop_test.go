package main_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipam-guard/ipam-guard/internal/fakeipam/record"
	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// Case 9: the guard is killed in an ADD, as runtimes do it at their deadline,
// and the DEL follows at once (cilium #9913).
func TestSIGKILLOfTheGuard(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	p := n.Start(t, "ADD", "c1", ask(Script{"ADD": "touch begun; sleep 5s; alloc"}, nil))
	add := n.AwaitCalls(t, "ADD", 1)[0]
	p.Kill()
	n.Run(t, "DEL", "c1", ask(nil, nil)).OK(t)
	n.NoOverlap(t)
	guardtest.Eventually(t, "the moment of its alloc", func() bool { return record.Now()-add.Start > int64(6*time.Second) })
	if p.Wait(t).Stdout != "" || guardtest.Alive(add.PID) || n.Calls(t, "ADD")[0].Ended {
		t.Error("the delegate has outlived the guard")
	}
	wantLeases(t, n)
}

// shellDelegate hangs in an ADD with a child that isn't the guard's. Its DEL
// says whether that child was still there, and not just about to be gone: a
// killed process gives up its lock a moment before it is a zombie.
const shellDelegate = `
if [ "$CNI_COMMAND" = ADD ]; then
	sleep 3600 &
	echo $! >child.new && mv child.new child
	wait
fi
alive() { grep -q '^State:.[RSD]' "/proc/$(cat child)/status" 2>/dev/null; }
for i in 1 2 3 4 5 6 7 8 9 10; do
	alive && sleep 0.1
done
alive && echo overlap >>seen
echo "$CNI_COMMAND" >>seen`

// Case 9, its twin: what a shell script leaves behind keeps the lock, and the
// next DEL clears it away before it runs (cilium #9913, containerd #5438).
func TestSIGKILLLeavesAnOrphan(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	n.InstallScript(t, "shell", shellDelegate)
	o := guardtest.Opts{Conf: guardtest.Conf{Delegate: Object{"type": "shell"}}}
	p := n.Start(t, "ADD", "c1", o)
	child := filepath.Join(n.Dir, "child")
	guardtest.Eventually(t, "the child", func() bool { _, err := os.Stat(child); return err == nil })
	p.Kill()
	n.Run(t, "DEL", "c1", o).OK(t)
	seen, err := os.ReadFile(filepath.Join(n.Dir, "seen"))
	if err != nil || string(seen) != "DEL\n" {
		t.Errorf("seen %q, %v", seen, err)
	}
	has(t, strings.Join(warnings(lastLine(t, n)), "\n"), "left behind by the dead guard", "killed")
}

// A guard that is told to stop in the middle of its delegate ends the whole
// group and answers once.
func TestSIGTERMDuringTheDelegate(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		sig    syscall.Signal
		verb   string
		script string
	}{
		"TERM in ADD":              {syscall.SIGTERM, "ADD", "alloc; fork 1h; touch here; waitfile never"},
		"INT in DEL":               {syscall.SIGINT, "DEL", "fork 1h; touch here; waitfile never"},
		"TERM and it won't listen": {syscall.SIGTERM, "DEL", "ignore TERM; fork 1h; touch here; waitfile never"},
		"TERM in CHECK":            {syscall.SIGTERM, "CHECK", "fork 1h; touch here; waitfile never"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := guardtest.New(t)
			p := n.Start(t, tt.verb, "c1", ask(Script{tt.verb: tt.script}, nil))
			guardtest.Eventually(t, "the delegate", func() bool { _, err := os.Stat(n.FakeDir + "/here"); return err == nil })
			awaitListening(t, n)
			p.Signal(tt.sig)
			r := p.Wait(t)
			e := r.Error(t)
			if r.RC != 1 || e.Code != 11 || e.CNIVersion != "1.0.0" || r.Held {
				t.Errorf("have %+v", r)
			}
			has(t, e.Msg, "fake", tt.verb, "container c1", "told to stop")
			if tt.verb == "ADD" {
				has(t, e.Details, "call DEL")
			}
			for _, pid := range append(n.Pids(t), n.Calls(t)[0].PID) {
				guardtest.Eventually(t, "death of the group", func() bool { return !guardtest.Alive(pid) })
			}
			if tt.verb != "CHECK" {
				wantFree(t, n.LockPath("delegate-fake"))
			}
			wantCalls(t, n, tt.verb)
		})
	}
}

// awaitListening waits until the delegate has run for so long that the guard
// listens to signals: before, one ends it like SIGKILL.
func awaitListening(t *testing.T, n *guardtest.Node) {
	t.Helper()
	guardtest.Eventually(t, "a guard that listens", func() bool {
		calls := n.Calls(t)
		return len(calls) > 0 && record.Now()-calls[len(calls)-1].Start > int64(time.Second)
	})
}

func TestSIGTERMInTheQueue(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"ADD", "DEL"} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			n := guardtest.New(t)
			lock := n.LockPath("delegate-fake")
			n.HoldLock(t, lock, time.Hour)
			p := n.Start(t, verb, "c1", ask(nil, nil))
			awaitQueue(t, p, lock)
			p.Signal(syscall.SIGTERM)
			r := p.Wait(t)
			e := r.Error(t)
			if r.RC != 1 || e.Code != 11 || r.Took > 45*time.Second {
				t.Errorf("have %+v", r)
			}
			has(t, e.Msg, "container c1", lock, "waited", "gave up")
			wantCalls(t, n, "")
		})
	}
}

func TestSIGTERMBetweenAttempts(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	p := n.Start(t, "DEL", "c1", ask(Script{"DEL": fail(999, refusedMsg)}, Object{
		"deadline": Object{"del": "1h"}, "retry": Object{"attempts": 100, "backoff": "20m", "maxBackoff": "20m"},
	}))
	guardtest.Eventually(t, "a guard that waits for its next attempt", func() bool {
		calls := n.Calls(t)
		return len(calls) > 0 && calls[0].Ended && record.Now()-calls[0].End > int64(time.Second)
	})
	p.Signal(syscall.SIGTERM)
	r := p.Wait(t)
	if e := r.Error(t); r.RC != 1 || e.CNIVersion != "1.0.0" {
		t.Errorf("have %+v", r)
	}
	wantFree(t, n.LockPath("delegate-fake"))
}

// A guard that still waits for its netconf, as for somebody who calls it by
// hand, isn't deaf: it dies of the signal, or answers with an error.
func TestSIGTERMBeforeTheNetconf(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	cmd := exec.Command(n.Guard())
	cmd.Dir = n.Dir
	cmd.Env = []string{"CNI_COMMAND=ADD", "CNI_CONTAINERID=c1", "CNI_IFNAME=eth0", "CNI_NETNS=/proc/self/ns/net", "CNI_PATH=" + n.Bin}
	in, feed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer feed.Close()
	var stdout bytes.Buffer
	cmd.Stdin, cmd.Stdout = in, &stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := feed.WriteString("{"); err != nil {
		t.Fatal(err)
	}
	guardtest.Eventually(t, "a guard that reads", func() bool {
		left, err := unix.IoctlGetInt(int(feed.Fd()), unix.TIOCINQ)
		return err == nil && left == 0
	})
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	deaf := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
	defer deaf.Stop()
	err = cmd.Wait()
	var e guardtest.CNIError
	ws := cmd.ProcessState.Sys().(syscall.WaitStatus)
	died := ws.Signaled() && ws.Signal() == syscall.SIGTERM && stdout.Len() == 0
	answered := ws.ExitStatus() == 1 && json.Unmarshal(stdout.Bytes(), &e) == nil && e.Code != 0
	if !died && !answered {
		t.Errorf("%v, stdout %q", err, stdout.String())
	}
}
