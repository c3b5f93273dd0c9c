package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// manyHeld copies the record and the reservation of one pod, until there are that many
// of both.
func manyHeld(t *testing.T, n node, count int) {
	t.Helper()
	n.plugin(t, "ADD", "pod", "/proc/self/ns/net", true)
	record, address := read(t, n.recordOf("pod")), filepath.Base(n.reservation(t, "pod"))
	var list strings.Builder
	list.WriteString("pod\n")
	for i := 1; i < count; i++ {
		name, ip := fmt.Sprintf("pod-%d", i), fmt.Sprintf("198.18.%d.%d", 1+i/250, 1+i%250)
		text := strings.NewReplacer(`"container":"pod"`, `"container":"`+name+`"`, address, ip).Replace(record)
		dir := n.path("state", "records", name)
		err := os.Mkdir(dir, 0o700)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "eth0@pods@host-local"), []byte(text), 0o600)
		}
		if err == nil {
			err = os.WriteFile(n.path("networks", "pods", ip), []byte(name+"\r\neth0"), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&list, name)
	}
	n.write(t, "containers", list.String())
}

// With 10,000 records and reservations the answer comes at once; what it took is
// in the log. The bound is for a machine that has much else to do.
func TestAuditOfMany(t *testing.T) {
	n := storedNode(t)
	n.write(t, "net.d/10-pods.conflist", strings.Replace(read(t, n.path("net.d", "10-pods.conflist")), "203.0.113.0/24", "198.18.0.0/15", 1))
	manyHeld(t, n, 10_000)
	for name, args := range map[string][]string{"audit": n.auditArgs("audit"), "gc": n.auditArgs("gc", "--dry-run")} {
		began := time.Now()
		out, status := n.tool(t, nil, args...)
		took := time.Since(began)
		t.Logf("%s: %s", name, took.Round(time.Millisecond))
		if status != 0 || took > 20*time.Second {
			t.Errorf("%s: exit status %d after %s\n%.2000s", name, status, took, out)
		}
	}
}

// A user without rights is told what he lacks.
func TestAuditWithoutRights(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("taking rights away needs root")
	}
	n := storedNode(t)
	n.write(t, "containers", "# nothing\n")
	n.plugin(t, "ADD", "pod", "/proc/self/ns/net", true)
	g := &guardtest.Node{Dir: n.dir, FakeDir: n.path("fake")}
	g.Open(t)
	for _, dir := range []string{"state", "state/records", "networks"} {
		if err := os.Chmod(n.path(dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	nobody := &syscall.Credential{Uid: 65534, Gid: 65534}
	for _, args := range [][]string{n.auditArgs("audit"), n.auditArgs("gc")} {
		out, status := n.tool(t, nobody, args...)
		if status != 1 || !strings.Contains(out, "run it as root") || strings.Contains(out, "goroutine") {
			t.Errorf("%s: exit status %d\n%s", args[0], status, out)
		}
	}
}

// Records that can't be read, or are of a newer version, hold what they are of.
func TestAuditOfUnreadable(t *testing.T) {
	t.Parallel()
	n := storedNode(t)
	n.write(t, "containers", "# nothing\n")
	n.plugin(t, "ADD", "newer", "/proc/self/ns/net", true)
	n.plugin(t, "ADD", "broken", "/proc/self/ns/net", true)
	newer := strings.Replace(read(t, n.recordOf("newer")), `"version":1`, `"version":99`, 1)
	if err := os.WriteFile(n.recordOf("newer"), []byte(newer), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(n.recordOf("broken"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if short, _ := n.audit(t, 0); len(short) > 0 {
		t.Errorf("found %v", short)
	}
	same(t, "gc", n.gc(t, 0), []string{"newer left", "broken left"})
	if read(t, n.recordOf("newer")) != newer || read(t, n.recordOf("broken")) != "{" {
		t.Error("a record was touched")
	}
}
