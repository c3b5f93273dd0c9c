package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// traced runs the tool and returns the system calls that it made on files and
// descriptors, one a line.
func (n node) traced(t *testing.T, want int, args ...string) []string {
	t.Helper()
	log := filepath.Join(t.TempDir(), "calls")
	cmd := exec.Command("strace", append([]string{
		"-f", "-qq", "-o", log, "-e", "trace=%file,%desc", "-e", "signal=none", n.path("tool", "ipam-guardctl"),
	}, append(args, n.confDir()...)...)...)
	cmd.Dir = n.dir
	cmd.Env = []string{"FAKEIPAM_DIR=" + n.path("fake")}
	out, err := cmd.CombinedOutput()
	if strings.Contains(string(out), "ptrace") && strings.Contains(string(out), "not permitted") {
		t.Skipf("ptrace is refused here: %s", out)
	}
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != want {
		t.Fatalf("%v: %v, want exit status %d\n%.2000s", args, err, want, out)
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(strings.Split(string(text), "\n"), func(line string) bool {
		return line == "" || strings.Contains(line, "epoll_") || strings.Contains(line, "resumed>")
	})
}

// Who names a record has that one read, and no other.
func TestNamedRecordIsReadAlone(t *testing.T) {
	t.Parallel()
	n := withRecords(t, 20)
	for want, args := range map[int][]string{
		0: {"pending", "owed00007"},
		4: {"replay", "owed00007/eth0@pods@host-local", "--dry-run"},
	} {
		n.readsOne(t, want, args...)
	}
	n.readsOne(t, 4, "forget", "owed00007", "--dry-run")
}

func (n node) readsOne(t *testing.T, want int, args ...string) {
	t.Helper()
	var opened []string
	for _, call := range n.traced(t, want, args...) {
		if strings.Contains(call, "open") && (strings.Contains(call, "@host-local") || strings.Contains(call, "/records/")) {
			opened = append(opened, call)
		}
	}
	// Its folder, and the record in it.
	if len(opened) != 2 || !strings.Contains(opened[0], "/records/owed00007\"") || !strings.Contains(opened[1], `"eth0@pods@host-local"`) {
		t.Errorf("%v opens\n%s", args, strings.Join(opened, "\n"))
	}
}

// What a record costs the commands that read all: its folder opened, listed and
// closed; the record opened, tried, read and closed. An attachment's network
// namespace is looked at, too.
func TestCallsPerRecord(t *testing.T) {
	t.Parallel()
	few, many := withRecords(t, 100), withRecords(t, 1100)
	for want, args := range map[int][][]string{
		0: {{"status"}, {"pending"}},
		4: {{"replay", "--all", "--dry-run"}},
	} {
		for _, args := range args {
			per := float64(len(many.traced(t, want, args...))-len(few.traced(t, want, args...))) / 1000
			t.Logf("%v: %.2f system calls per record", args, per)
			if per > 8.5 || per < 5 {
				t.Errorf("%v: %.2f system calls per record, want 8", args, per)
			}
		}
	}
}
