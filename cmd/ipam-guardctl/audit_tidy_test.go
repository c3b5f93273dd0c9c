package main_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// On a node without the guard, audit leaves no folder behind: neither where it
// only looks, nor where it has taken the keys of what is leaked. What was there
// stays, empty too.
func TestAuditLeavesNothing(t *testing.T) {
	t.Parallel()
	n := storedNode(t)
	n.ok(t, "unwrap", n.path("net.d"))
	n.write(t, "containers", "# nothing\n")
	for _, ip := range []string{"203.0.113.100", "203.0.113.101"} {
		n.plant(t, "pods/"+ip, "gone-"+ip+"\r\neth0")
	}
	left := func() []string {
		all, err := filepath.Glob(n.path("state*", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	n.audit(t, 3)
	if _, err := os.Lstat(n.path("state")); err == nil {
		t.Errorf("a look leaves %q", left())
	}
	n.interruptedRelease(t)
	if _, err := os.Lstat(n.path("state")); err == nil {
		t.Errorf("a release leaves %q", left())
	}
	if err := os.MkdirAll(n.path("state", "queue"), 0o700); err != nil {
		t.Fatal(err)
	}
	n.interruptedRelease(t)
	same(t, "where a folder was there", left(), []string{n.path("state", "queue")})
}

// interruptedRelease waits until the tool has the keys of both, and interrupts it.
func (n node) interruptedRelease(t *testing.T) {
	t.Helper()
	cmd := exec.Command(n.path("tool", "ipam-guardctl"), n.auditArgs("audit", "--release", "--yes")...)
	cmd.Dir = n.dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	guardtest.Eventually(t, "both keys to be taken", func() bool {
		records, err := filepath.Glob(n.path("state", "records", "gone-*", "*"))
		return err == nil && len(records) == 2
	})
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 1 || !strings.Contains(out.String(), "interrupted: not released") {
		t.Errorf("%v\n%s", err, out.String())
	}
}
