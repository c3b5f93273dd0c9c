package main_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
	"github.com/ipam-guard/ipam-guard/pkg/journal"
)

// Case 14: a release can't be deferred where it can't be recorded: no success
// then, and both errors are told (azure-container-networking #2138, #2183).
func TestDeferThatCantBeRecorded(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		recorded bool // by an ADD, before all goes wrong
		spoil    func(t *testing.T, n *guardtest.Node, o *guardtest.Opts) (mend func())
		cause    string
	}{
		"read-only":             {false, readOnly, "permission denied"},
		"read-only, recorded":   {true, readOnly, "permission denied"},
		"full disk":             {false, fullDisk, "no space left on device"},
		"full disk, recorded":   {true, failing("write", "records/c1/eth0@testnet@fake", "ENOSPC"), "no space left on device"},
		"fsync of the record":   {true, failing("fsync", "records/c1/eth0@testnet@fake", "EIO"), "input/output error"},
		"fsync of its folder":   {true, failing("fsync", "records/c1", "EIO"), "input/output error"},
		"fsync of records":      {true, failing("fsync", "records", "EIO"), "input/output error"},
		"fsync of its queue":    {true, failing("fsync", "queue/fake", "EIO"), "input/output error"},
		"fsync of queues":       {true, failing("fsync", "queue", "EIO"), "input/output error"},
		"fsync of the stateDir": {true, failing("fsync", ".", "EIO"), "input/output error"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := guardtest.New(t)
			o := ask(nil, onError("defer"))
			if strings.HasPrefix(name, "read-only") {
				asNobody(t, n, &o)
			}
			if tt.recorded && !lasts(n) {
				t.Skip("a temporary folder that does not last is refused before anything is written")
			}
			if tt.recorded {
				n.Run(t, "ADD", "c1", o).OK(t)
			} else {
				b := bare(n, nil)
				b.Credential = o.Credential
				n.Run(t, "ADD", "c1", b).OK(t)
			}
			n.SetScript(t, Script{"DEL": fail(100, "boom")})
			mend := tt.spoil(t, n, &o)
			e := n.Run(t, "DEL", "c1", o).Error(t)
			if e.Code != 11 || e.Msg != "boom" {
				t.Errorf("have %+v", e)
			}
			has(t, e.Details, "defer", tt.cause, "container c1")
			wantCalls(t, n, "ADD DEL")
			mend()
			switch {
			case strings.HasSuffix(name, ", recorded"): // nothing could be written at all
				wantStates(t, n, "c1/eth0 attached")
			case tt.recorded: // owed as after any DEL that failed, and not as one of an address that nobody uses
				wantStates(t, n, "c1/eth0 releasing netns")
			}
		})
	}
}

// readOnly takes all rights to write below the stateDir.
func readOnly(t *testing.T, n *guardtest.Node, _ *guardtest.Opts) (mend func()) {
	if err := os.MkdirAll(n.StateDir, 0o755); err != nil {
		t.Fatal(err)
	}
	var all []string
	err := filepath.WalkDir(n.StateDir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type()&os.ModeSymlink == 0 {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	chmod := func(write os.FileMode) {
		for _, path := range all {
			st, err := os.Lstat(path)
			if err == nil {
				err = os.Chmod(path, st.Mode().Perm()&^0o222|write)
			}
			if err != nil {
				t.Error(err)
			}
		}
	}
	chmod(0)
	mend = sync.OnceFunc(func() { chmod(0o200) })
	t.Cleanup(mend)
	return mend
}

// fullDisk puts a small file system that is full in the place of the stateDir,
// seen by the guard alone.
func fullDisk(t *testing.T, n *guardtest.Node, o *guardtest.Opts) (mend func()) {
	flags := "-m"
	if os.Geteuid() != 0 {
		flags = "-rm"
	}
	if err := os.MkdirAll(n.StateDir, 0o755); err != nil {
		t.Fatal(err)
	}
	mount := fmt.Sprintf("mount -t tmpfs -o size=16k none '%s'", n.StateDir)
	if out, err := exec.Command("unshare", flags, "sh", "-c", mount).CombinedOutput(); err != nil {
		t.Skipf("no mount namespace, or no mount in it, may be had here: %v %s", err, out)
	}
	guard := n.Guard()
	inner := n.InstallScript(t, "full", fmt.Sprintf("%s && { cat /dev/zero >'%s/fill'; exec '%s'; } 2>/dev/null", mount, n.StateDir, guard))
	o.Binary = n.InstallScript(t, "apart", fmt.Sprintf("exec unshare %s '%s'", flags, inner))
	return func() {}
}

// failing makes one system call on one path below the stateDir fail.
func failing(call, path, errno string) func(*testing.T, *guardtest.Node, *guardtest.Opts) func() {
	return func(t *testing.T, n *guardtest.Node, o *guardtest.Opts) func() {
		o.Binary = traced(t, n, fmt.Sprintf("-o /dev/null -P '%s' -e trace=%s -e inject=%s:error=%s", filepath.Join(n.StateDir, path), call, call, errno))
		return func() {}
	}
}

// Case 14, second part: success is said only over a record that is on disk; a
// SIGKILL at any moment changes nothing about that
// (azure-container-networking #2138, #2183).
func TestDeferredIsOnDisk(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	if !lasts(n) {
		t.Skip("nothing is deferred in a temporary folder that does not last")
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	n.SetScript(t, Script{"ADD": "alloc-same", "DEL": fail(100, "boom")})
	o := ask(nil, onError("defer"))
	usual := n.Run(t, "DEL", "c0", o).OK(t).Took
	j := journalOf(n)
	said := 0
	for i := range 25 {
		container := fmt.Sprintf("d%d", i)
		k := journal.Key{Network: "testnet", Container: container, IfName: "eth0", Delegate: "fake"}
		n.Run(t, "ADD", container, o).OK(t)
		p := n.Start(t, "DEL", container, o)
		select {
		case <-p.Done():
		case <-time.After(usual/2 + time.Duration(random.Int64N(int64(usual)))):
		}
		p.Kill()
		r := p.Wait(t)
		e := j.Try(k)
		if e == nil {
			t.Fatalf("no record after %+v", r)
		}
		if r.RC == 0 {
			said++
			if e.State != journal.Releasing || e.Owed != journal.Now || !strings.Contains(e.LastError, "boom") {
				t.Errorf("success said over %+v", e.Status)
			}
		}
		e.Close()
	}
	t.Logf("%d of 25 were told success", said)
}

// The record is written, then synced, then success is said.
func TestDeferredIsSyncedLast(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	if !lasts(n) {
		t.Skip("nothing is deferred in a temporary folder that does not last")
	}
	o := ask(nil, onError("defer"))
	n.Run(t, "ADD", "c1", o).OK(t)
	n.SetScript(t, Script{"DEL": fail(100, "boom")})
	trace := filepath.Join(n.Dir, "trace")
	o.Binary = traced(t, n, fmt.Sprintf("-o '%s' -P '%s' -e trace=write,pwrite64,ftruncate,fsync", trace, recordFile(t, n, "c1")))
	n.Run(t, "DEL", "c1", o).OK(t)
	text, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	// Calls alone: strace also notes where it let go of a thread.
	calls := regexp.MustCompile(`(?m)^\d+ +(write|pwrite64|ftruncate|fsync)\(`).FindAllStringSubmatch(string(text), -1)
	if len(calls) == 0 || calls[len(calls)-1][1] != "fsync" || !strings.Contains(string(text), "releasing") {
		t.Errorf("have\n%s", text)
	}
}
