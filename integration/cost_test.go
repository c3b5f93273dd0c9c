//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
	"github.com/ipam-guard/ipam-guard/pkg/journal"
)

// mostCalls is what the records may cost one ADD and its DEL, in system calls.
const mostCalls = 40

// needStrace skips where system calls can't be watched: what these tests count
// can't be had by other means.
func needStrace(t *testing.T) string {
	t.Helper()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("there is no strace here: system calls can't be counted")
	}
	if out, err := exec.Command(strace, "-f", "-o", os.DevNull, "true").CombinedOutput(); err != nil {
		t.Skipf("ptrace is refused here (%v): system calls can't be counted\n%s", err, out)
	}
	return strace
}

// traced does a call of the guard under strace and returns the guard's own
// system calls, not those of its delegate: one a line, data left out, each
// descriptor with its path.
func traced(t *testing.T, n *guardtest.Node, verb, container string, c conf) []string {
	t.Helper()
	strace := needStrace(t)
	trace := filepath.Join(t.TempDir(), "trace")
	shim := n.InstallScript(t, "traced", fmt.Sprintf("exec %s -f -b execve -y -s 0 -o %s %s", strace, trace, n.Guard()))
	n.Run(t, verb, container, opts{Conf: c, Binary: shim}).OK(t)
	text, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	var calls []string
	for line := range strings.Lines(string(text)) {
		// The second half of a call that another thread's came between.
		if !strings.Contains(line, " resumed>") {
			calls = append(calls, strings.TrimSpace(line))
		}
	}
	if len(calls) < 100 || !strings.Contains(calls[0], "execve(") {
		t.Fatalf("%s is no trace of the guard:\n%s", trace, text)
	}
	return calls
}

// onRecords are the calls that name a path below stateDir, or act on a
// descriptor that was opened there.
func onRecords(n *guardtest.Node, calls []string) []string {
	var found []string
	for _, c := range calls {
		if strings.Contains(c, n.StateDir) {
			found = append(found, c)
		}
	}
	return found
}

var syncing = regexp.MustCompile(`^\d+ +(f?sync|fdatasync|syncfs|sync_file_range|msync)\(|O_D?SYNC`)

// A pod's start and end wait for no disk, and cost little more than the lines
// that are written: also where others are attached, and one of them is looked at.
func TestCostOfRecords(t *testing.T) {
	n := guardtest.New(t)
	for _, pod := range []string{"other-1", "other-2"} {
		n.Run(t, "ADD", pod, opts{}).OK(t)
	}
	n.Run(t, "DEL", "other-2", opts{}).OK(t) // whatever is made once, is there
	add, del := traced(t, n, "ADD", "pod", conf{}), traced(t, n, "DEL", "pod", conf{})
	for _, c := range append(add, del...) {
		if syncing.MatchString(c) {
			t.Errorf("waits for the disk: %s", c)
		}
	}
	have := append(onRecords(n, add), onRecords(n, del)...)
	if len(have) < 10 {
		t.Fatalf("only %d calls on records: this test shows nothing", len(have))
	}
	if len(have) > mostCalls {
		t.Errorf("%d system calls on records, at most %d are allowed:\n%s", len(have), mostCalls, strings.Join(have, "\n"))
	}
	t.Logf("%d system calls on records for an ADD and its DEL (at most %d), none of them syncs", len(have), mostCalls)
}

// What is promised is synced: the check above can see a sync.
func TestDeferIsSynced(t *testing.T) {
	n := guardtest.New(t)
	n.Run(t, "ADD", "pod", opts{}).OK(t)
	if err := journalOf(n).Lasting(); err != nil {
		t.Skipf("nothing can be promised here: %v", err)
	}
	n.SetScript(t, guardtest.Script{"DEL": `exit 1 "out of order" 100`})
	calls := traced(t, n, "DEL", "pod", conf{Guard: object{"policy": object{"onError": "defer"}}})
	synced := 0
	for _, c := range onRecords(n, calls) {
		if syncing.MatchString(c) {
			synced++
		}
	}
	if synced < 2 {
		t.Errorf("%d syncs of a promise, want the record's and its folders':\n%s", synced, strings.Join(onRecords(n, calls), "\n"))
	}
}

// Case 15: an ADD before 10,000 pending records asks the kernel for exactly
// what it asks for before none. (azure-container-networking #4458)
func TestCase15PendingRecordsCostAnAddNothing(t *testing.T) {
	const pending = 10_000
	n := guardtest.New(t)
	n.Run(t, "ADD", "first", opts{}).OK(t)
	before := kinds(n, traced(t, n, "ADD", "pod-1", conf{}))
	if before["on records"] < 5 {
		t.Fatalf("%v before none: this test shows nothing", before)
	}
	owe(t, n, pending)
	after := kinds(n, traced(t, n, "ADD", "pod-2", conf{}))
	for name, count := range before {
		if after[name] != count {
			t.Errorf("%s: %d times before none, %d times before %d pending records", name, count, after[name], pending)
		}
	}
	for name, count := range after {
		if before[name] == 0 {
			t.Errorf("%s: %d times before %d pending records, never before none", name, count, pending)
		}
	}
}

// owe makes records of attachments that could not be released.
func owe(t *testing.T, n *guardtest.Node, count int) {
	t.Helper()
	j := journalOf(n)
	for i := range count {
		k := journal.Key{Network: "testnet", Container: fmt.Sprintf("gone-%d", i), IfName: "eth0", Delegate: "fake"}
		e, _, err := j.Take(context.Background(), time.Time{}, k, &journal.Record{
			Facts:  journal.Facts{Netconf: n.Netconf(conf{Position: guardtest.Bare})},
			Status: journal.Status{State: journal.Releasing, Owed: journal.Now, Started: true},
		}, func(line string) { t.Error(line) })
		if err != nil {
			t.Fatal(err)
		}
		e.Close()
	}
	if due, _ := j.Queue("fake"); len(due) < 1000 {
		t.Fatalf("%d are due of %d: this test shows nothing", len(due), count)
	}
}

func journalOf(n *guardtest.Node) *journal.Journal {
	return &journal.Journal{Dir: n.StateDir, Node: journal.Here()}
}

var syscallName = regexp.MustCompile(`^\d+ +(\w+)\(`)

// onFiles are the calls that name or search files. Others say more about how the
// threads took turns: who reads from a pipe twice, who had to be woken.
var onFiles = regexp.MustCompile(`^(open|l?stat|newfstatat|f?access|readlink|getdents|mkdir|rmdir|unlink|rename|link|symlink|flock|pread|pwrite|f?truncate)`)

// kinds counts the system calls on records, all of them, and those on any files,
// by their names.
func kinds(n *guardtest.Node, calls []string) map[string]int {
	count := map[string]int{"on records": len(onRecords(n, calls))}
	for _, c := range calls {
		if m := syscallName.FindStringSubmatch(c); len(m) == 2 && onFiles.MatchString(m[1]) {
			count[m[1]]++
		}
	}
	return count
}
