package main_test

import (
	"fmt"
	"math/rand/v2"
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

// spoilt are ways in which a record can be no record. Each changes the file.
var spoilt = map[string]func(path string) error{
	"0 bytes":           func(path string) error { return os.Truncate(path, 0) },
	"cut short":         func(path string) error { return os.Truncate(path, 100) },
	"junk":              func(path string) error { return os.WriteFile(path, []byte("{junk\n"), 0o600) },
	"zeros":             func(path string) error { return os.WriteFile(path, make([]byte, 4096), 0o600) },
	"empty object":      func(path string) error { return os.WriteFile(path, []byte("{}\n"), 0o600) },
	"null":              func(path string) error { return os.WriteFile(path, []byte("null\n"), 0o600) },
	"wrong types":       func(path string) error { return os.WriteFile(path, []byte(`{"version":1,"state":7}`+"\n"), 0o600) },
	"no such state":     func(path string) error { return extended(path, `{"state":"odd"}`+"\n") },
	"junk after a line": func(path string) error { return extended(path, "junk\n") },
	"far too large":     func(path string) error { return os.Truncate(path, 9<<20) },
	"a folder":          func(path string) error { return replaced(path, os.Mkdir(path+".new", 0o755)) },
	"a symbolic link":   func(path string) error { return replaced(path, os.Symlink("/etc/passwd", path+".new")) },
	"a fifo":            func(path string) error { return replaced(path, syscall.Mkfifo(path+".new", 0o666)) },
	"closed to us":      func(path string) error { return os.Chmod(path, 0o000) },
}

func extended(path, more string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(more)
	return err
}

func replaced(path string, err error) error {
	if err == nil {
		err = os.Remove(path)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	return err
}

// Case 22: a record that can't be read is set aside, with one warning; the call
// goes by stdin (cni #1055, multus #1087).
func TestRecordThatCantBeRead(t *testing.T) {
	t.Parallel()
	for name, spoil := range spoilt {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := guardtest.New(t)
			del := marked("of the DEL", nil)
			asNobody(t, n, &del)
			add := marked("of the ADD", nil)
			add.Credential = del.Credential

			// By its own DEL, which goes by stdin then.
			n.Run(t, "ADD", "c1", add).OK(t)
			spoilRecord(t, n, "c1", spoil)
			n.Run(t, "DEL", "c1", del).OK(t)
			wantSetAside(t, n, 1)
			if have := fmt.Sprint(marks(t, n)); have != "[of the DEL]" {
				t.Errorf("netconfs %s", have)
			}
			wantLeases(t, n)
			wantStates(t, n)

			// By another ADD of its key.
			n.Run(t, "ADD", "c1", add).OK(t)
			spoilRecord(t, n, "c1", spoil)
			n.Run(t, "ADD", "c1", add).OK(t)
			wantSetAside(t, n, 2)
			wantStates(t, n, "c1/eth0 attached")

			// By somebody else's DEL, which comes across it: it stands for
			// nothing that may be released.
			spoilRecord(t, n, "c1", spoil)
			n.Run(t, "DEL", "c2", del).OK(t)
			wantSetAside(t, n, 3)
			wantStates(t, n)
			if len(n.Leases(t)) != 2 {
				t.Errorf("leases %v", n.Leases(t))
			}
		})
	}
}

func spoilRecord(t *testing.T, n *guardtest.Node, container string, spoil func(string) error) {
	t.Helper()
	if err := spoil(recordFile(t, n, container)); err != nil {
		t.Fatal(err)
	}
}

// wantSetAside: the newest call warned once, of what is there now.
func wantSetAside(t *testing.T, n *guardtest.Node, files int) {
	t.Helper()
	aside, _ := os.ReadDir(filepath.Join(n.StateDir, "aside"))
	if len(aside) != files {
		t.Errorf("%d files set aside, want %d", len(aside), files)
	}
	line := lastLine(t, n)
	if w := warnings(line); len(w) != 1 || !strings.Contains(w[0], "set aside as "+filepath.Join(n.StateDir, "aside")) || !strings.Contains(w[0], recordFile(t, n, "c1")) {
		t.Errorf("warnings %q", w)
	}
}

// Case 22, second part: SIGKILL at any moment leaves every record readable, or
// none (cni #1055, multus #1087).
func TestSIGKILLNeverLeavesHalfARecord(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	j := journalOf(n)
	o := ask(nil, Object{"retry": Object{"attempts": 1}})
	usual := n.Run(t, "ADD", "c0", o).OK(t).Took
	for i := range 50 {
		verb := []string{"ADD", "DEL"}[random.IntN(2)]
		p := n.Start(t, verb, fmt.Sprintf("c%d", random.IntN(4)), o)
		select {
		case <-p.Done():
		case <-time.After(time.Duration(random.Int64N(int64(usual)))):
			p.Kill()
		}
		r := p.Wait(t)
		if bad, _ := j.Walk("", "", func(journal.Key) {}); bad != 0 {
			t.Fatalf("%d unreadable records after kill %d, in %s: %+v", bad, i, verb, r)
		}
	}
	for i := range 4 {
		n.Run(t, "DEL", fmt.Sprintf("c%d", i), o).OK(t)
	}
	wantStates(t, n)
	wantLeases(t, n)
	n.NoOverlap(t)
	if aside, _ := os.ReadDir(filepath.Join(n.StateDir, "aside")); len(aside) != 0 {
		t.Errorf("set aside: %v", aside)
	}
}

// Case 14: a release can't be deferred where it can't be recorded: no success
// then, and both errors are told (azure-container-networking #2138, #2183).
func TestDeferThatCantBeRecorded(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		recorded bool // by an ADD, before all goes wrong
		break_   func(t *testing.T, n *guardtest.Node, o *guardtest.Opts)
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
			if strings.Contains(name, ",") || tt.recorded {
				if !lasts(n) {
					t.Skip("a temporary folder that does not last is refused before anything is written")
				}
			}
			if tt.recorded {
				n.Run(t, "ADD", "c1", o).OK(t)
			} else {
				n.Run(t, "ADD", "c1", bare(n, nil)).OK(t)
			}
			n.SetScript(t, Script{"DEL": fail(100, "boom")})
			tt.break_(t, n, &o)
			e := n.Run(t, "DEL", "c1", o).Error(t)
			if e.Code != 11 || e.Msg != "boom" {
				t.Errorf("have %+v", e)
			}
			has(t, e.Details, "defer", tt.cause, "container c1")
			wantCalls(t, n, "ADD DEL")
			if tt.recorded { // it is owed as after any DEL that failed
				wantKeptAtLeast(t, n, name)
			}
		})
	}
}

// wantKeptAtLeast: the attachment is still known, and not as one that nobody
// uses any more.
func wantKeptAtLeast(t *testing.T, n *guardtest.Node, name string) {
	t.Helper()
	want := "c1/eth0 releasing netns"
	if strings.HasSuffix(name, ", recorded") { // nothing could be written at all
		want = "c1/eth0 attached"
	}
	wantStates(t, n, want)
}

func readOnly(t *testing.T, n *guardtest.Node, _ *guardtest.Opts) {
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
	modes := func(file, folder os.FileMode) {
		for _, path := range all {
			st, err := os.Lstat(path)
			if err != nil {
				continue
			}
			mode := file
			if st.IsDir() {
				mode = folder
			}
			if err := os.Chmod(path, mode); err != nil {
				t.Error(err)
			}
		}
	}
	modes(0o444, 0o555)
	if os.Geteuid() == 0 {
		return // we may all, the guard as another user may not
	}
	t.Cleanup(func() { modes(0o644, 0o755) })
}

// fullDisk puts a small file system that is full in the place of the stateDir,
// seen by the guard alone.
func fullDisk(t *testing.T, n *guardtest.Node, o *guardtest.Opts) {
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
}

// failing makes one system call on one path below the stateDir fail.
func failing(call, path, errno string) func(*testing.T, *guardtest.Node, *guardtest.Opts) {
	return func(t *testing.T, n *guardtest.Node, o *guardtest.Opts) {
		o.Binary = traced(t, n, fmt.Sprintf("-o /dev/null -P '%s' -e trace=%s -e inject=%s:error=%s", filepath.Join(n.StateDir, path), call, call, errno))
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
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if !strings.Contains(lines[len(lines)-1], "fsync(") || !strings.Contains(string(text), "releasing") {
		t.Errorf("have\n%s", text)
	}
}
