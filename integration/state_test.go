//go:build integration

package integration_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
	"github.com/ipam-guard/ipam-guard/pkg/journal"
)

// privateMounts gives this test's thread, and what it starts, mounts of their
// own. The thread is never used by others again.
func privateMounts(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	err := unix.Unshare(unix.CLONE_NEWNS)
	if err == nil {
		err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	}
	if err != nil {
		t.Skipf("no mount namespaces here, so no full and no read-only disk: %v", err)
	}
}

// mountState puts a file system of its own below stateDir.
func mountState(t *testing.T, n *guardtest.Node) {
	t.Helper()
	privateMounts(t)
	if err := os.MkdirAll(n.StateDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", n.StateDir, "tmpfs", 0, "size=128k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(n.StateDir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// fill leaves no byte free below stateDir, nor in the last page of c1's record.
func fill(t *testing.T, n *guardtest.Node) {
	t.Helper()
	path := recordOfC1(t, n)
	record, err := os.ReadFile(path)
	if err != nil || len(record) > 4000 {
		t.Fatalf("%d bytes in %s (%v)", len(record), path, err)
	}
	record = fmt.Appendf(record, "{\"padding\":%q}\n", strings.Repeat("x", 4096-len(record)-len(`{"padding":""}`)-1))
	if err := os.WriteFile(path, record, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(n.StateDir, "full"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 4096); err == nil; _, err = f.Write(block) {
	}
	if !strings.Contains(err.Error(), unix.ENOSPC.Error()) {
		t.Fatal(err)
	}
}

// trouble is something wrong with stateDir. Before it, c1 was attached.
type trouble struct {
	name    string
	mounted bool // stateDir is a file system of its own
	make    func(*testing.T, *guardtest.Node)
	want    map[string]told // by what is asked, see questions
}

// told is the answer to a call, and what became of the addresses. code 0 is
// success.
type told struct {
	code   uint
	text   string // in the error, or in the log's warnings
	leases string // afterwards
	run    bool   // the delegate was run for this verb
}

const (
	c1, c2 = "c1/eth0", "c2/eth0"
	both   = c1 + " " + c2
)

var (
	goesOn   = told{0, "", c1, true} // CHECK and STATUS need no record
	deferred = told{0, "", c1, true} // on a file system that lasts
	refused  = told{5, "see records.onUnavailable", c1, false}
)

func troubles() []trouble {
	return []trouble{
		{"none", false, func(*testing.T, *guardtest.Node) {}, map[string]told{
			"ADD c2": {0, "", both, true}, "ADD c2, proceed": {0, "", both, true}, "ADD c1": {0, "", c1, true},
			"DEL c1": {0, "", "", true}, "DEL c1, defer": deferred, "DEL c3, defer": deferred,
			"CHECK c1": goesOn, "STATUS": goesOn,
			"GC": {0, "", c1, true}, // it lives: the guard adds it to the list
		}},
		{"disk full", true, fill, map[string]told{
			"ADD c2":          refused,
			"ADD c2, proceed": {0, "no space left", both, true},
			"ADD c1":          {5, "no space left", c1, true},
			"DEL c1":          {0, "no space left", "", true},
			"DEL c1, defer":   deferred, // as far as a tmpfs can show it
			"DEL c3, defer":   {11, "no space left", c1, true},
			"CHECK c1":        goesOn, "STATUS": goesOn,
			"GC": {0, "", c1, true},
		}},
		{"read-only", true, func(t *testing.T, n *guardtest.Node) {
			if err := unix.Mount("", n.StateDir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
				t.Fatal(err)
			}
		}, map[string]told{
			"ADD c2":          refused,
			"ADD c2, proceed": {0, "read-only file system", both, true},
			"ADD c1":          {11, "its record is there and can't be changed", c1, false},
			"DEL c1":          {0, "read-only file system", "", true},
			"DEL c1, defer":   {11, "read-only file system", c1, true},
			"DEL c3, defer":   {11, "read-only file system", c1, true},
			"CHECK c1":        goesOn,
			"STATUS":          {50, "stateDir", c1, false},
			"GC":              {0, "", c1, true},
		}},
		{"missing", false, func(t *testing.T, n *guardtest.Node) {
			if err := os.RemoveAll(n.StateDir); err != nil {
				t.Fatal(err)
			}
		}, map[string]told{ // it is made again
			"ADD c2": {0, "", both, true}, "ADD c2, proceed": {0, "", both, true}, "ADD c1": {0, "", c1, true},
			"DEL c1": {0, "", "", true}, "DEL c1, defer": deferred, "DEL c3, defer": deferred,
			"CHECK c1": goesOn, "STATUS": goesOn,
			"GC": {0, "", "", true}, // without a record it goes by what the caller listed
		}},
		{"missing, a file in its way", false, func(t *testing.T, n *guardtest.Node) {
			err := os.RemoveAll(n.StateDir)
			if err == nil {
				err = os.WriteFile(n.StateDir, nil, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
		}, map[string]told{
			"ADD c2":          refused,
			"ADD c2, proceed": {0, "not a directory", both, true},
			"ADD c1":          refused,
			"DEL c1":          {0, "not a directory", "", true},
			"DEL c1, defer":   {11, "not a directory", c1, true},
			"DEL c3, defer":   {11, "not a directory", c1, true},
			"CHECK c1":        goesOn,
			"STATUS":          {50, "stateDir", c1, false},
			"GC":              {0, "", "", true},
		}},
		{"record of junk", false, spoil(func(path string) error { return os.WriteFile(path, []byte("junk\n"), 0o600) }), unreadable()},
		{"record of 0 bytes", false, spoil(func(path string) error { return os.WriteFile(path, nil, 0o600) }), unreadable()},
		{"record a folder", false, spoil(func(path string) error { return os.MkdirAll(path, 0o700) }), unreadable()},
		{"record a pipe", false, spoil(func(path string) error { return unix.Mkfifo(path, 0o600) }), unreadable()},
		{"record a link", false, spoil(func(path string) error { return os.Symlink(os.DevNull, path) }), unreadable()},
	}
}

// unreadable is what is answered where c1's record can't be read: the first
// who needs it sets it aside, and the operation goes on with stdin.
func unreadable() map[string]told {
	return map[string]told{
		"ADD c2": {0, "", both, true}, "ADD c2, proceed": {0, "", both, true},
		"ADD c1":        {0, "set aside", c1, true},
		"DEL c1":        {0, "set aside", "", true},
		"DEL c1, defer": {0, "set aside", c1, true}, "DEL c3, defer": deferred,
		"CHECK c1": goesOn, "STATUS": goesOn,
		"GC": {0, "1 records can't be read", c1, true}, // taken for valid: who it is may live
	}
}

func recordOfC1(t *testing.T, n *guardtest.Node) string {
	t.Helper()
	found, _ := filepath.Glob(filepath.Join(n.StateDir, "records/c1/*"))
	if len(found) != 1 {
		t.Fatalf("records of c1: %v", found)
	}
	return found[0]
}

// spoil replaces c1's record.
func spoil(put func(path string) error) func(*testing.T, *guardtest.Node) {
	return func(t *testing.T, n *guardtest.Node) {
		path := recordOfC1(t, n)
		err := os.Remove(path)
		if err == nil {
			err = put(path)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// questions are the calls of which each is put to a node of its own.
func questions() map[string]conf {
	return map[string]conf{
		"ADD c2": {}, "ADD c1": {}, "DEL c1": {}, "CHECK c1": {}, "STATUS": {},
		"ADD c2, proceed": {Guard: object{"records": object{"onUnavailable": "proceed"}}},
		"DEL c1, defer":   {Guard: object{"policy": object{"onError": "defer"}}},
		"DEL c3, defer":   {Guard: object{"policy": object{"onError": "defer"}}},
		"GC":              {Top: object{validKey: list{}}},
	}
}

const outOfOrder = "my server is out of order"

// Case 14, Case 22, Case 25, Case 48: whatever is wrong with stateDir, each verb
// has its answer. (azure-container-networking #2138, cni #1055, antrea #829, plugins #498)
func TestStateDirInTrouble(t *testing.T) {
	for _, trouble := range troubles() {
		for question, c := range questions() {
			t.Run(trouble.name+"/"+question, func(t *testing.T) {
				want, ok := trouble.want[question]
				if !ok {
					t.Fatal("no answer is defined")
				}
				n := guardtest.New(t)
				if trouble.mounted {
					mountState(t, n)
				}
				c.Version, c.Script = "1.1.0", guardtest.Script{"ADD": "alloc-same", "GC": "gc"}
				if strings.HasSuffix(question, "defer") {
					c.Script["DEL"] = fmt.Sprintf("exit 1 %q 100", outOfOrder)
				}
				n.Run(t, "ADD", "c1", opts{Conf: conf{Version: c.Version, Script: c.Script}}).OK(t)
				if strings.HasSuffix(question, "defer") && want.code == 0 && journalOf(n).Lasting() != nil {
					want.code, want.text = 11, "does not last"
				}
				trouble.make(t, n)
				putTo(t, n, question, c, want)
			})
		}
	}
}

func putTo(t *testing.T, n *guardtest.Node, question string, c conf, want told) {
	t.Helper()
	verb, container, _ := strings.Cut(question, " ")
	container, _, _ = strings.Cut(container, ",")
	ran := len(n.Calls(t, verb))
	r := n.Run(t, verb, container, opts{Conf: c})
	text := fmt.Sprint(n.Log(t)[len(n.Log(t))-1]["warnings"])
	code := uint(0)
	if r.RC != 0 {
		e := r.Error(t)
		code, text = e.Code, e.Msg+"; "+e.Details
	}
	if code != want.code || !strings.Contains(text, want.text) {
		t.Errorf("code %d, %q; want code %d with %q", code, text, want.code, want.text)
	}
	if have := len(n.Calls(t, verb)) > ran; have != want.run {
		t.Errorf("the delegate was run: %t, want %t", have, want.run)
	}
	if have := strings.Join(values(n.Leases(t)), " "); have != want.leases {
		t.Errorf("addresses of %q, want %q", have, want.leases)
	}
	if !strings.HasSuffix(question, "defer") {
		return
	}
	if code != 0 && !strings.Contains(text, outOfOrder) {
		t.Errorf("the delegate's own error isn't told: %q", text)
	}
	if code == 0 && !owed(n, container) {
		t.Error("told success, and there is neither a release nor a record of it")
	}
}

// owed reports whether a container's record says that it must be released.
func owed(n *guardtest.Node, container string) bool {
	e := journalOf(n).Try(journal.Key{Network: "testnet", Container: container, IfName: "eth0", Delegate: "fake"})
	if e == nil {
		return false
	}
	defer e.Close()
	return e.State == journal.Releasing && e.Owed == journal.Now
}
