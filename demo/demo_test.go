package main_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
	"github.com/ipam-guard/ipam-guard/pkg/journal"
)

func TestMain(m *testing.M) { guardtest.Main(m) }

// binaries makes a folder like bin/, without bridge, so that the demo is the
// same with and without root. hostLocal, if not "", is a script in host-local's
// place; $REAL leads to the real one.
func binaries(t *testing.T, hostLocal string) string {
	t.Helper()
	dir := t.TempDir()
	real := guardtest.Build(t, guardtest.HostLocal)
	if err := os.Mkdir(filepath.Join(dir, "cni"), 0o755); err != nil {
		t.Fatal(err)
	}
	links := map[string]string{"ipam-guard": guardtest.Build(t, guardtest.Guard), "cni/host-local": real}
	if hostLocal != "" {
		links["cni/host-local"] = filepath.Join(dir, "script")
		script := "#!/bin/sh\nREAL=" + real + "\n" + hostLocal
		if err := os.WriteFile(links["cni/host-local"], []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// demo runs it and returns what it printed, and its exit status.
func demo(t *testing.T, bin string) (stdout string, rc int) {
	t.Helper()
	var out, diag bytes.Buffer
	cmd := exec.Command(guardtest.Build(t, "github.com/ipam-guard/ipam-guard/demo"), "--bin", bin, "--pods", "10")
	tmp := t.TempDir()
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	cmd.Stdout, cmd.Stderr = &out, &diag
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if diag.Len() > 0 {
		t.Errorf("stderr: %s", &diag)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// onceLeaked is the first number in a row of the last table.
func onceLeaked(t *testing.T, out, row string) int {
	t.Helper()
	found := regexp.MustCompile(row + ` +(\d+) leaked`).FindStringSubmatch(out)
	if found == nil {
		t.Fatalf("no row %s in:\n%s", row, out)
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// canPromise says whether the demo finds a folder in which a record lasts.
func canPromise(t *testing.T) bool {
	t.Helper()
	for _, dir := range []string{t.TempDir(), "/var/tmp"} {
		if (&journal.Journal{Dir: dir}).Lasting() == nil {
			return true
		}
	}
	return false
}

func TestNothingLeaksWithTheGuard(t *testing.T) {
	out, rc := demo(t, binaries(t, ""))
	if rc != 0 || lastLine(out) != "leaked addresses: 0" {
		t.Errorf("exit status %d, last line %q", rc, lastLine(out))
	}
	wants := []string{"10 pods, 10 different addresses", "timeout 1.5", "transient -> fail", "rc 1, code 100"}
	lasting := canPromise(t)
	if lasting {
		wants = append(wants, "transient -> defer", "pending: 5 ", "1 0\n")
	} else {
		wants = append(wants, "5 times nothing could be promised", "does not last")
	}
	for _, want := range wants {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	if bare := onceLeaked(t, out, "bare"); bare != 5 {
		t.Errorf("bare: %d leaked, though the server was away for 5 pods, in\n%s", bare, out)
	}
	if guarded := onceLeaked(t, out, "guarded"); lasting == (guarded > 0) {
		t.Errorf("guarded: %d leaked in\n%s", guarded, out)
	}
	if strings.Contains(out, "\x1b") {
		t.Error("colour, though this is no terminal")
	}
}

// A delegate that says it did and did not: the demo counts what is there.
func TestLeaksAreCountedAndFailTheDemo(t *testing.T) {
	out, rc := demo(t, binaries(t, `[ "$CNI_COMMAND" = DEL ] || exec "$REAL"`))
	var leaked int
	_, err := fmt.Sscanf(lastLine(out), "leaked addresses: %d", &leaked)
	// The pods', and those of the visitors that came while releases were pending.
	if err != nil || rc != 1 || leaked < 10 {
		t.Errorf("exit status %d, last line %q", rc, lastLine(out))
	}
}
