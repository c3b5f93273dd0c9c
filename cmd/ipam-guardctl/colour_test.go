package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Colour on a terminal only, and not if it is unwanted.
func TestColour(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	file := n.write(t, "10-pods.conflist", podsConf)
	if out, _ := n.tool(t, nil, "plan", file); strings.Contains(out, "\x1b[") || !strings.Contains(out, "\n+") {
		t.Errorf("into a pipe: %q", out)
	}
	for env, want := range map[string]bool{"TERM=xterm": true, "NO_COLOR=": true, "NO_COLOR=1": false, "TERM=dumb": false} {
		if out := onTerminal(t, env, n.path("tool", "ipam-guardctl"), "plan", file); strings.Contains(out, "\x1b[32m+") != want {
			t.Errorf("%s: %q, colour wanted: %v", env, out, want)
		}
	}
}

// onTerminal runs a command whose output is a terminal.
func onTerminal(t *testing.T, env, name string, args ...string) string {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	defer master.Close()
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	cmd := exec.Command(name, args...)
	cmd.Env, cmd.Stdout = []string{env}, slave
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = slave.Close()
	var out strings.Builder
	buf := make([]byte, 4096)
	for { // its end is an error once nobody has the other side open
		read, err := master.Read(buf)
		out.Write(buf[:read])
		if err != nil {
			break
		}
	}
	_ = cmd.Wait()
	return out.String()
}
