package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
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
	cmd := exec.Command(name, args...)
	cmd.Env = []string{env}
	return typing(t, cmd, nil)
}

// typing runs a command on a terminal: its output, and with answers its input and
// stderr too. Each answer is typed when its question has been read.
func typing(t *testing.T, cmd *exec.Cmd, answers [][2]string) string {
	t.Helper()
	master, slave := terminal(t)
	defer master.Close()
	cmd.Stdout = slave
	if answers != nil {
		cmd.Stdin, cmd.Stderr = slave, slave
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true} // so that ^C is an interrupt
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = slave.Close()
	var out strings.Builder
	buf := make([]byte, 4096)
	for { // its end is an error once nobody has the other side open
		read, err := master.Read(buf)
		out.Write(buf[:read])
		if len(answers) > 0 && strings.Contains(out.String(), answers[0][0]) {
			_, _ = master.WriteString(strings.TrimSuffix(answers[0][1]+"\n", "\x03\n"))
			if answers[0][1] == "\x03" {
				_, _ = master.WriteString("\x03") // alone: an empty line would be an answer
			}
			answers = answers[1:]
		}
		if err != nil {
			break
		}
	}
	_ = cmd.Wait()
	return out.String()
}

// terminal opens both sides of one.
func terminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	return master, slave
}

// On a terminal forget asks, and for a reason; replay tells how far it is.
func TestTerminal(t *testing.T) {
	t.Parallel()
	n := withRecords(t, 3)
	run := func(answers [][2]string, args ...string) (string, int) {
		cmd := exec.Command(n.path("tool", "ipam-guardctl"), append(args, n.confDir()...)...)
		cmd.Dir, cmd.Env = n.dir, []string{"FAKEIPAM_DIR=" + n.path("fake")}
		return typing(t, cmd, answers), cmd.ProcessState.ExitCode()
	}
	out, status := run([][2]string{{"[y/N]", ""}}, "forget", "owed00000")
	if status != 1 || !strings.Contains(out, "nothing was done") {
		t.Errorf("no answer: exit status %d\n%s", status, out)
	}
	out, status = run([][2]string{{"[y/N]", "\x03"}}, "forget", "owed00000")
	if status != 1 || !strings.Contains(out, "nothing was done") {
		t.Errorf("^C: exit status %d\n%s", status, out)
	}
	out, status = run([][2]string{{"[y/N]", "y"}, {"Why?", "the pool is gone"}}, "forget", "owed00000")
	if status != 0 || !strings.Contains(out, "given up") || !strings.Contains(read(t, n.path("log")), ": the pool is gone\"") {
		t.Errorf("yes: exit status %d\n%s", status, out)
	}
	out, status = run([][2]string{}, "replay", "--all")
	if status != 0 || !strings.Contains(out, "\r\x1b[K1 of 2, 0 failed") || strings.Count(out, " released") != 2 {
		t.Errorf("exit status %d\n%q", status, out)
	}
}
