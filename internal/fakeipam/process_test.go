package main_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ipam-guard/ipam-guard/internal/fakeipam/record"
	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

func TestOverlapIsNoticed(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	overlaps := func() (out []bool) {
		for _, c := range n.Calls(t) {
			out = append(out, c.Overlap)
		}
		return out
	}
	run(t, n, "ADD", "c1", "alloc").OK(t)
	first := n.Start(t, "DEL", "c1", direct(n, guardtest.Conf{Script: guardtest.Script{"DEL": "waitfile go"}}))
	n.AwaitCalls(t, "DEL", 1)
	run(t, n, "CHECK", "c1", "").OK(t)
	run(t, n, "ADD", "c2", "alloc").OK(t)
	n.Touch(t, "go")
	first.Wait(t).OK(t)
	run(t, n, "GC", "", "").OK(t)
	if have, want := overlaps(), []bool{false, false, false, true, false}; !slices.Equal(have, want) {
		t.Errorf("overlaps %v, want %v", have, want)
	}
}

func TestNoOverlapWithTheDeadOrWithChildren(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	p := n.Start(t, "ADD", "c1", direct(n, guardtest.Conf{Script: guardtest.Script{"ADD": "waitfile never"}}))
	n.AwaitCalls(t, "ADD", 1)
	p.Kill()
	p.Wait(t)
	run(t, n, "DEL", "c1", "fork 1h; daemon 1h").OK(t)
	run(t, n, "DEL", "c1", "free").OK(t)
	n.NoOverlap(t)
	if c := n.Calls(t)[0]; c.Ended {
		t.Error("a killed call has an end")
	}
}

func TestForkKeepsThePipesOpen(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	r := run(t, n, "ADD", "c1", "alloc; fork 1h").OK(t)
	if !r.Held {
		t.Error("nobody holds the output")
	}
	pid := n.Pids(t)[0]
	if pgid, err := unix.Getpgid(pid); err != nil || pgid != n.Calls(t)[0].PGID {
		t.Errorf("the child's group is %d, %v; want %d", pgid, err, n.Calls(t)[0].PGID)
	}
	r = run(t, n, "DEL", "c1", "free; daemon 1h").OK(t)
	if r.Held {
		t.Error("the daemon holds the output")
	}
	pid = n.Pids(t)[1]
	if sid, err := unix.Getsid(pid); err != nil || sid != pid || !guardtest.Alive(pid) {
		t.Errorf("the daemon's session is %d, %v; want %d", sid, err, pid)
	}
}

// The point of fork and daemon: a lock on an inherited descriptor lives as long
// as the last process that has it.
func TestChildrenInheritDescriptors(t *testing.T) {
	t.Parallel()
	for _, statement := range []string{"fork", "daemon"} {
		n := guardtest.New(t)
		path := filepath.Join(n.Dir, "lock")
		lock, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(n.Bin + "/fake")
		cmd.Dir = n.Dir
		cmd.Env = []string{"CNI_COMMAND=DEL", "FAKEIPAM_DIR=" + n.FakeDir}
		cmd.ExtraFiles = []*os.File{lock}
		n.SetScript(t, guardtest.Script{"DEL": statement + " 1h"})
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		lock.Close()
		if have, want := n.Calls(t)[0].FDs, []record.FD{{FD: 3, Target: path}}; !slices.Equal(have, want) {
			t.Errorf("inherited %v, want %v", have, want)
		}
		again, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { again.Close() })
		if err := unix.Flock(int(again.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
			t.Errorf("%s: the lock is free: %v", statement, err)
		}
		if err := unix.Kill(n.Pids(t)[0], unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		guardtest.Eventually(t, "the lock after the child", func() bool {
			return unix.Flock(int(again.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
		})
	}
}

func TestFlood(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	o := direct(n, guardtest.Conf{Script: guardtest.Script{"ADD": "flood 200MB"}})
	o.Runtime = true
	r := n.Run(t, "ADD", "c1", o).OK(t)
	if r.StdoutBytes != 200<<20 || len(r.Stdout) != 4<<20 {
		t.Errorf("%d bytes came, %d were kept", r.StdoutBytes, len(r.Stdout))
	}
	if r.MaxRSSKB <= 0 || r.MaxRSSKB > 64<<10 {
		t.Errorf("%d KiB at its peak", r.MaxRSSKB)
	}
}

// What can't be written is said on stderr and the script goes on.
func TestFloodIntoASealedMemfd(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	fd, err := unix.MemfdCreate("stdout", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	memfd := os.NewFile(uintptr(fd), "stdout")
	defer memfd.Close()
	if err := memfd.Truncate(1 << 20); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(memfd.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_GROW|unix.F_SEAL_SHRINK); err != nil {
		t.Fatal(err)
	}
	n.SetScript(t, guardtest.Script{"DEL": "flood 2MB; touch after"})
	var stderr bytes.Buffer
	cmd := exec.Command(n.Bin + "/fake")
	cmd.Dir, cmd.Stdout, cmd.Stderr = n.Dir, memfd, &stderr
	cmd.Env = []string{"CNI_COMMAND=DEL", "FAKEIPAM_DIR=" + n.FakeDir}
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	if !exists(n.FakeDir+"/after") || !strings.Contains(stderr.String(), "operation not permitted") {
		t.Errorf("stderr %q", stderr.String())
	}
}

func TestKillParent(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	o := direct(n, guardtest.Conf{Script: guardtest.Script{"ADD": "killparent; alloc; touch after"}})
	o.Runtime = true
	if r := n.Run(t, "ADD", "c1", o); r.Signal != syscall.SIGKILL {
		t.Errorf("the parent ended so: %+v", r)
	}
	guardtest.Eventually(t, "the orphan's work", func() bool { return exists(n.FakeDir + "/after") })
	wantLeases(t, n, map[string]string{"10.9.0.2": "c1/eth0"})
}

func TestRecordsWhatItGot(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	const stdin = "{ \"n\": 9007199254740993,\n\"ipam\":{}, \"\xff\":1}\n"
	before := record.Now()
	n.Run(t, "ADD", "c1", guardtest.Opts{
		Binary: n.Bin + "/fake", Stdin: []byte(stdin), IfName: "net7", Args: "K=V;junk", Netns: "/some/where",
		Env: []string{"IPAM_GUARD_ABOVE=fake", "X=a b\nc", "CNI_NETNS_OVERRIDE"},
	}).OK(t)
	c := n.Calls(t)[0]
	if c.Stdin != stdin {
		t.Errorf("stdin %q, want %q", c.Stdin, stdin)
	}
	have := []string{c.Verb, c.Container, c.IfName, c.Netns, c.Args, c.Path, c.Above}
	if want := []string{"ADD", "c1", "net7", "/some/where", "K=V;junk", n.Bin, "fake"}; !slices.Equal(have, want) {
		t.Errorf("have %q, want %q", have, want)
	}
	if !slices.Contains(c.Env, "X=a b\nc") || slices.ContainsFunc(c.Env, func(e string) bool { return strings.HasPrefix(e, "CNI_NETNS_OVERRIDE") }) {
		t.Errorf("environment %q", c.Env)
	}
	if c.PID == 0 || c.PPID != os.Getpid() || c.PGID != c.PID || len(c.FDs) != 0 {
		t.Errorf("pid %d, parent %d, group %d, descriptors %v", c.PID, c.PPID, c.PGID, c.FDs)
	}
	if before > c.Start || c.Start > c.End || c.End > record.Now() {
		t.Errorf("started %d, ended %d", c.Start, c.End)
	}
	raw, err := os.ReadFile(n.FakeDir + "/calls.jsonl")
	if err != nil || !strings.Contains(string(raw), base64.StdEncoding.EncodeToString([]byte(stdin))) {
		t.Errorf("%v: no base64 of what is no UTF-8 in %s", err, raw)
	}
}

// The object is found by its type, then by its keys.
func TestOwnObject(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	other := t.TempDir()
	yes := guardtest.Object{"dir": n.FakeDir, "script": guardtest.Script{"*": "exit 3"}}
	no := guardtest.Object{"dir": other}
	tests := map[string]struct {
		top, ipam         guardtest.Object
		topType, ipamType string
	}{
		"ipam by type":       {no, yes, "bridge", "fake"},
		"ipam by its keys":   {nil, yes, "bridge", "renamed"},
		"top by type":        {yes, no, "fake", "host-local"},
		"top by its keys":    {yes, nil, "renamed", "host-local"},
		"ipam, both by type": {no, yes, "fake", "fake"},
		"ipam, top has none": {nil, yes, "fake", "other"},
	}
	for name, tt := range tests {
		netconf := guardtest.Object{"cniVersion": "1.0.0", "name": "n"}
		maps.Copy(netconf, tt.top)
		netconf["type"] = tt.topType
		ipam := maps.Clone(tt.ipam)
		if ipam == nil {
			ipam = guardtest.Object{}
		}
		ipam["type"] = tt.ipamType
		netconf["ipam"] = ipam
		stdin, err := json.Marshal(netconf)
		if err != nil {
			t.Fatal(err)
		}
		o := guardtest.Opts{Binary: n.Bin + "/fake", Stdin: stdin}
		if r := n.Run(t, "DEL", "c1", o); r.RC != 3 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// A typo in a script must not pass for an outcome.
func TestBrokenScriptIsLoud(t *testing.T) {
	t.Parallel()
	for _, script := range []string{"allok", "alloc; sleep", "sleep soon", `print "open`, `exit 1 "msg"`, "alloc alloc", "flood many"} {
		n := guardtest.New(t)
		dir := t.TempDir() // not the node's, which would report it
		o := direct(n, guardtest.Conf{Delegate: guardtest.Object{"dir": dir}, Script: guardtest.Script{"ADD": script}})
		if r := n.Run(t, "ADD", "c1", o); r.RC != 97 || r.Stdout != "" || !strings.Contains(r.Stderr, "fakeipam: script") {
			t.Errorf("%s: %+v", script, r)
		}
		calls, err := record.Read(dir)
		if err != nil || len(calls) != 1 || calls[0].Broken == "" {
			t.Errorf("%s: recorded %+v, %v", script, calls, err)
		}
	}
}

func TestReadSkipsALineInTheMaking(t *testing.T) {
	dir := t.TempDir()
	if err := record.Begin(dir, record.Call{N: 1, Verb: "ADD"}); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "calls.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(`{"end":1,"exi`); err != nil {
		t.Fatal(err)
	}
	calls, err := record.Read(dir)
	if err != nil || len(calls) != 1 || calls[0].Ended {
		t.Errorf("%+v, %v", calls, err)
	}
	if _, err := f.WriteString("t\":4,\"end_ns\":1}\n"); err != nil {
		t.Fatal(err)
	}
	if calls, err = record.Read(dir); err != nil || !calls[0].Ended || calls[0].Exit != 4 {
		t.Errorf("%+v, %v", calls, err)
	}
}
