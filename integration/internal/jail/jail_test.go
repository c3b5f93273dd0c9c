//go:build integration

package jail_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/ipam-guard/ipam-guard/integration/internal/jail"
	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// stubborn starts two processes that leave their parents' sessions and take no
// SIGTERM, in a group of the jail's as a runtime would make it, and prints their
// pids, in the jail.
func stubborn(t testing.TB, j *jail.Jail) []jail.Process {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", `trap '' TERM HUP; setsid sleep 1h & setsid sleep 1h`)
	if _, err := j.Start(cmd); err != nil {
		t.Fatal(err)
	}
	var found []jail.Process
	guardtest.Eventually(t, "two processes and their shell", func() bool {
		found = j.Processes(t)
		return len(found) >= 3
	})
	return found
}

// group makes a control group of the jail's with one below it.
func group(t testing.TB, j *jail.Jail) string {
	t.Helper()
	for _, root := range []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup"} {
		dir := filepath.Join(root, j.Name)
		if os.MkdirAll(filepath.Join(dir, "pod"), 0o755) == nil {
			return dir
		}
	}
	t.Fatal("no control group can be made here")
	return ""
}

// What is in a jail is gone with the test, also after it failed.
func TestEndsWithTheTest(t *testing.T) {
	var all []jail.Process
	var dir, mounted string
	t.Run("inside", func(t *testing.T) {
		j := jail.New(t)
		all, dir = stubborn(t, j), group(t, j)
		mounted = j.Path("/run")
		if err := os.WriteFile(filepath.Join(mounted, "left"), nil, 0o644); err != nil {
			t.Error(err)
		}
	})
	for _, p := range all {
		if guardtest.Alive(p.PID) {
			t.Errorf("%s, pid %d, lives on", p.Name, p.PID)
		}
	}
	for _, path := range []string{dir, "/run/left"} {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s is left", path)
		}
	}
}

// The same after a SIGKILL of the test process; its control group goes with the
// next jail that is made.
func TestEndsWithTheTestProcess(t *testing.T) {
	if os.Getenv("JAIL_HELPER") != "" {
		liveInAJail(t)
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^TestEndsWithTheTestProcess$")
	cmd.Env = append(os.Environ(), "JAIL_HELPER=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	words := strings.Fields(line)
	if len(words) < 4 {
		t.Fatalf("the helper said %q", line)
	}
	for _, word := range words[1:] {
		pid, err := strconv.Atoi(word)
		if err != nil {
			t.Fatalf("the helper said %q", line)
		}
		guardtest.Eventually(t, "the end of pid "+word, func() bool { return !guardtest.Alive(pid) })
	}
	t.Run("next", func(t *testing.T) { jail.New(t) })
	if _, err := os.Lstat(words[0]); err == nil {
		t.Errorf("%s is left", words[0])
	}
}

// liveInAJail is the process that is killed.
func liveInAJail(t *testing.T) {
	j := jail.New(t)
	line := group(t, j)
	for _, p := range stubborn(t, j) {
		line += fmt.Sprintf(" %d", p.PID)
	}
	fmt.Println(line)
	select {}
}

// Two machines have nothing in common, and neither has what this one has.
func TestApart(t *testing.T) {
	one, other := jail.New(t), jail.New(t)
	for _, dir := range []string{"/run", "/var/lib"} {
		if err := os.WriteFile(filepath.Join(one.Path(dir), "mine"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		for _, theirs := range []string{other.Path(dir), dir} {
			if _, err := os.Lstat(filepath.Join(theirs, "mine")); err == nil {
				t.Errorf("%s of a jail is seen in %s", dir, theirs)
			}
		}
	}
	out, err := one.Run(exec.Command("/bin/sh", "-c", "cat /proc/net/dev; ls /proc | grep -c '^[0-9]'"))
	if err != nil || strings.Contains(out, "eth0") {
		t.Errorf("%v: %s", err, out)
	}
}
