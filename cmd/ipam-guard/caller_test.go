package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// closeOutput closes our ends of a guard's pipes, and is back when they are
// closed: not while a child of ours that is just being started has them too.
func closeOutput(t *testing.T, p *guardtest.Proc) {
	t.Helper()
	pipe, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/1", p.Pid))
	if err != nil {
		t.Fatal(err)
	}
	p.CloseOutput()
	own := fmt.Sprintf("/proc/%d/", p.Pid)
	guardtest.Eventually(t, "an output that nobody reads", func() bool {
		fds, _ := filepath.Glob("/proc/[0-9]*/fd/*")
		return !slices.ContainsFunc(fds, func(fd string) bool {
			target, _ := os.Readlink(fd)
			return target == pipe && !strings.HasPrefix(fd, own)
		})
	})
}

// Case 44 for one invocation: the caller no longer reads (cri-o #8007). A pod
// that nobody learns of keeps no address.
func TestCallerNoLongerReads(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	p := n.Start(t, "ADD", "c1", ask(Script{"ADD": "alloc; stderr \"to nobody\"; waitfile go"}, nil))
	n.AwaitCalls(t, "ADD", 1)
	closeOutput(t, p)
	n.Touch(t, "go")
	if r := p.Wait(t); r.RC != 1 {
		t.Errorf("have %+v", r)
	}
	wantCalls(t, n, "ADD DEL")
	wantLeases(t, n)
	line := lastLine(t, n)
	if line["level"] != "error" || line["verdict"] != "fail" {
		t.Errorf("log: %v", line)
	}
	has(t, line["msg"].(string), "container c1", "broken pipe")

	// A DEL has nothing to say: it does its work.
	n.Run(t, "ADD", "c2", ask(nil, nil)).OK(t)
	n.SetScript(t, Script{"DEL": "stderr \"to nobody\"; waitfile go2; free"})
	p = n.Start(t, "DEL", "c2", ask(nil, nil))
	n.AwaitCalls(t, "DEL", 2)
	closeOutput(t, p)
	n.Touch(t, "go2")
	p.Wait(t).OK(t)
	wantLeases(t, n)
}

// The undoing takes the lock anew, and whoever has it meanwhile is waited for.
func TestUndoTakesTheLock(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	first := n.Start(t, "ADD", "c1", ask(Script{"ADD": "alloc; waitfile go"}, nil))
	n.AwaitCalls(t, "ADD", 1)
	second := n.Start(t, "ADD", "c2", ask(Script{"ADD": "alloc; sleep 300ms"}, nil))
	awaitQueue(t, second, n.LockPath("delegate-fake"))
	closeOutput(t, first)
	n.Touch(t, "go")
	if r := first.Wait(t); r.RC != 1 {
		t.Errorf("have %+v", r)
	}
	second.Wait(t).OK(t)
	n.NoOverlap(t)
	wantLeases(t, n, "c2/eth0")
}

// A stdout that can't be written to, as on a full disk.
func TestStdoutIsFull(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	full := n.InstallScript(t, "full", `exec "`+n.Guard()+`" >/dev/full`)
	o := ask(nil, nil)
	o.Binary = full
	if r := n.Run(t, "ADD", "c1", o); r.RC != 1 {
		t.Errorf("have %+v", r)
	}
	wantCalls(t, n, "ADD DEL")
	wantLeases(t, n)
	has(t, lastLine(t, n)["msg"].(string), "no space left on device")
}

// A stderr that can't be written to changes nothing.
func TestStderrIsFull(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	o := ask(Script{"ADD": `stderr "to nobody"; alloc`}, Object{"log": Object{"level": "debug"}})
	o.Binary = n.InstallScript(t, "full", `exec "`+n.Guard()+`" 2>/dev/full`)
	if ips := n.Run(t, "ADD", "c1", o).IPs(t); len(ips) != 1 {
		t.Errorf("addresses %v", ips)
	}
	wantCalls(t, n, "ADD")
}

// The runtime has died; the guard has another parent now.
func TestCallerIsGone(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	o := ask(Script{"ADD": "alloc; waitfile go"}, nil)
	o.Runtime = true
	p := n.Start(t, "ADD", "c1", o)
	n.AwaitCalls(t, "ADD", 1)
	guard := p.PluginPid(t)
	p.Kill()
	r := p.Wait(t)
	n.Touch(t, "go")
	guardtest.Eventually(t, "the end of the guard", func() bool { return !guardtest.Alive(guard) })
	if r.Stdout != "" {
		t.Errorf("stdout %q", r.Stdout)
	}
	wantCalls(t, n, "ADD DEL")
	wantLeases(t, n)
	line := lastLine(t, n)
	if line["level"] != "error" || line["verdict"] != "fail" {
		t.Errorf("log: %v", line)
	}
	has(t, line["msg"].(string), "container c1", "the caller is gone")
}

// Switched off, the guard gives back what nobody takes, too, but never queues
// for a lock.
func TestCallerNoLongerReadsInBypass(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	n.HoldLock(t, n.LockPath("delegate-fake"), time.Hour)
	p := n.Start(t, "ADD", "c1", ask(Script{"ADD": "alloc; waitfile go"}, Object{"mode": "bypass", "deadline": "30s", "timeout": "10s"}))
	n.AwaitCalls(t, "ADD", 1)
	closeOutput(t, p)
	n.Touch(t, "go")
	if r := p.Wait(t); r.RC != 1 {
		t.Errorf("have %+v", r)
	}
	wantCalls(t, n, "ADD DEL")
	wantLeases(t, n)
}

// A binary that is being installed just now is waited for (text file busy).
func TestDelegateIsBeingWritten(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	path := filepath.Join(n.Bin, "fresh")
	copyOf(t, n.Bin+"/fake", path)
	o := ask(nil, nil)
	o.Conf.Delegate = Object{"type": "fresh"}
	w, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	p := n.Start(t, "ADD", "c1", o)
	awaitQueue(t, p, n.LockPath("delegate-fresh"))
	time.Sleep(300 * time.Millisecond)
	wantCalls(t, n, "")
	_ = w.Close()
	p.Wait(t).OK(t)
	n.Run(t, "DEL", "c1", o).OK(t)
	wantCalls(t, n, "ADD DEL")
}

// One that is being written for ever is an error like any other.
func TestDelegateIsBeingWrittenForEver(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	path := filepath.Join(n.Bin, "fresh")
	copyOf(t, n.Bin+"/fake", path)
	w, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	o := ask(nil, Object{"retry": Object{"attempts": 1}})
	o.Conf.Delegate = Object{"type": "fresh"}
	r := n.Run(t, "ADD", "c1", o)
	if e := r.Error(t); e.Code != 11 || r.Took > 25*time.Second {
		t.Errorf("have %+v after %v", e, r.Took)
	}
	has(t, r.Error(t).Msg, "fresh", "container c1", "text file busy")
	wantCalls(t, n, "")
	wantFree(t, n.LockPath("delegate-fresh"))
}
