package hostlock_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ipam-guard/ipam-guard/pkg/hostlock"
)

// bound is what anything that should happen soon may take on a busy machine.
const bound = 30 * time.Second

// TestMain also is the main of the guard that the tests kill.
func TestMain(m *testing.M) {
	if path := os.Getenv("HOSTLOCK_TEST_GUARD"); path != "" {
		guard(path)
		return
	}
	if path := os.Getenv("HOSTLOCK_TEST_FOREIGN"); path != "" {
		foreign(path)
		return
	}
	os.Exit(m.Run())
}

// guard takes the lock and starts a shell script (HOSTLOCK_TEST_SCRIPT, if any) that has the locked descriptor as 3.
// Each line on stdin is a step: "group" notes the script's process group, "unlock" unlocks. Each is answered by its
// name. The first line of its output is the pid of the script.
func guard(path string) {
	l, err := hostlock.Acquire(context.Background(), time.Time{}, path,
		hostlock.Holder{Verb: "DEL", Network: "net", Container: "ctr", IfName: "eth0"}, func(s string) { fmt.Fprintln(os.Stderr, s) })
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	pid := 0
	if script := os.Getenv("HOSTLOCK_TEST_SCRIPT"); script != "" {
		fd, ok := l.FD()
		if !ok {
			fmt.Println("no descriptor")
			os.Exit(1)
		}
		env := append(os.Environ(), "HOSTLOCK_TEST_GUARD=")
		if os.Getenv("HOSTLOCK_TEST_MARK") != "" {
			env = append(env, hostlock.MarkEnv+"="+hostlock.Mark())
		}
		p, err := syscall.ForkExec("/bin/sh", []string{"sh", "-c", script}, &syscall.ProcAttr{
			Env: env, Files: []uintptr{0, 1, 2, fd}, Sys: &syscall.SysProcAttr{Setpgid: true},
		})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		pid = p
	}
	fmt.Println(pid)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); fmt.Println(in.Text()) {
		switch in.Text() {
		case "group":
			l.Group(pid)
		case "unlock":
			if err := l.Unlock(); err != nil {
				fmt.Println(err)
			}
		}
	}
}

// foreign holds the lock on the file, in its own way, until stdin ends.
func foreign(path string) {
	fd, err := syscall.Open(path, syscall.O_RDWR|syscall.O_CREAT, 0o600)
	if err == nil {
		err = syscall.Flock(fd, syscall.LOCK_EX)
	}
	fmt.Println(err)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// startForeign returns the pid, and process group, of a process that holds the lock and is no guard.
func startForeign(t *testing.T, path string) int {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "HOSTLOCK_TEST_FOREIGN="+path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "<nil>\n" {
		t.Fatalf("foreign holder: %q", line)
	}
	return cmd.Process.Pid
}

// child is a guard in a process of its own.
type child struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	script int // pid
}

// startGuard returns once the guard holds the lock and its script runs.
func startGuard(t *testing.T, path, script string, mark bool) *child {
	t.Helper()
	c := &child{t: t, cmd: exec.Command(os.Args[0])}
	c.cmd.Env = append(os.Environ(), "HOSTLOCK_TEST_GUARD="+path, "HOSTLOCK_TEST_SCRIPT="+script)
	if mark {
		c.cmd.Env = append(c.cmd.Env, "HOSTLOCK_TEST_MARK=1")
	}
	c.cmd.Stderr = os.Stderr
	in, err := c.cmd.StdinPipe()
	must(t, err)
	r, w, err := os.Pipe() // not StdoutPipe: what the guard leaves behind has it too, and Wait must not wait for that
	must(t, err)
	c.in, c.out, c.cmd.Stdout = in, bufio.NewReader(r), w
	must(t, c.cmd.Start())
	w.Close()
	t.Cleanup(func() {
		c.kill()
		if c.script > 0 {
			_ = syscall.Kill(-c.script, syscall.SIGKILL)
		}
		r.Close()
	})
	line := c.line()
	c.script, err = strconv.Atoi(line)
	if err != nil {
		t.Fatalf("guard: %s", line)
	}
	return c
}

func (c *child) line() string {
	c.t.Helper()
	s, err := c.out.ReadString('\n')
	if err != nil {
		c.t.Fatalf("guard's output: %q, %v", s, err)
	}
	return strings.TrimSpace(s)
}

func (c *child) do(step string) {
	c.t.Helper()
	fmt.Fprintln(c.in, step)
	if got := c.line(); got != step {
		c.t.Fatalf("guard: %s: %s", step, got)
	}
}

// kill sends SIGKILL and reaps.
func (c *child) kill() {
	if c.cmd.ProcessState == nil {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	}
}

// warnings collects them for one Acquire.
type warnings struct{ lines []string }

func (w *warnings) add(s string) { w.lines = append(w.lines, s) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func lockPath(t testing.TB) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "delegate-fake.lock")
}

func acquire(t testing.TB, path string) *hostlock.Lock {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	l, err := hostlock.Acquire(ctx, time.Time{}, path, hostlock.Holder{Verb: "ADD"}, nil)
	must(t, err)
	t.Cleanup(func() { _ = l.Unlock() })
	return l
}

// eventually waits until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(bound); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, bound)
		}
	}
}

// running: the process is there and no zombie.
func running(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return rest[0] != 'Z' && rest[0] != 'X'
}

// queued: how many wait for a flock on path, says the kernel.
func queued(t *testing.T, path string) (n int) {
	t.Helper()
	fi, err := os.Stat(path)
	must(t, err)
	b, err := os.ReadFile("/proc/locks")
	must(t, err)
	ino := fmt.Sprintf(":%d ", fi.Sys().(*syscall.Stat_t).Ino)
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, "-> FLOCK") && strings.Contains(line, ino) {
			n++
		}
	}
	return n
}
