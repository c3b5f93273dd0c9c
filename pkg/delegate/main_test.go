package delegate_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipam-guard/ipam-guard/pkg/delegate"
)

// The test binary is also some of the delegates, and a process that runs one.
func TestMain(m *testing.M) {
	role := os.Getenv("DELEGATE_TEST")
	if os.Geteuid() != os.Getuid() {
		role = "root" // installed setuid, and good for nothing else
	}
	if role == "" {
		os.Exit(m.Run())
	}
	roles[role]()
	os.Exit(0)
}

var roles = map[string]func(){
	"burst":  burst,
	"flood":  flood,
	"root":   becomeRoot,
	"runner": runner,
	"leave":  leaveGroup,
	"large":  large,
}

// flood writes FLOOD bytes to descriptor TO and says on stderr how that went.
func flood() {
	to, _ := strconv.Atoi(os.Getenv("TO"))
	block := []byte(strings.Repeat("x", 1<<16))
	left, _ := strconv.Atoi(os.Getenv("FLOOD"))
	for left > 0 {
		n, err := syscall.Write(to, block[:min(left, len(block))])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
		left -= n
	}
	fmt.Fprintln(os.Stderr, "all written")
}

// burst leaves more in the pipe than one read takes.
func burst() {
	if _, err := unix.FcntlInt(1, unix.F_SETPIPE_SZ, 256<<10); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	fmt.Print(strings.Repeat("x", 200<<10))
}

// becomeRoot is installed setuid root: its runner may not signal it.
func becomeRoot() {
	if err := syscall.Setuid(0); err != nil {
		fmt.Println("not root:", err)
		return
	}
	fmt.Println("root")
	time.Sleep(time.Minute)
}

// large has so much memory that the kernel takes a while to end it. It ignores
// SIGTERM.
func large() {
	signal.Ignore(syscall.SIGTERM)
	memory, err := unix.Mmap(-1, 0, 1<<30, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_POPULATE)
	if err != nil {
		os.Exit(3)
	}
	fmt.Println(os.Getpid(), len(memory))
	time.Sleep(time.Minute)
}

// leaveGroup moves to a process group of its own making and waits there.
func leaveGroup() {
	child := exec.Command("sleep", "60")
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := child.Start(); err != nil {
		os.Exit(3)
	}
	if err := syscall.Setpgid(0, child.Process.Pid); err != nil {
		os.Exit(4)
	}
	fmt.Println("left")
	time.Sleep(time.Minute)
}

// runner runs the Cmd in JOB and prints the pid, then the Run.
func runner() {
	var cmd delegate.Cmd
	if err := json.Unmarshal([]byte(os.Getenv("JOB")), &cmd); err != nil {
		panic(err)
	}
	out := os.Stdout
	for _, fd := range strings.Fields(os.Getenv("CLOSE")) {
		n, _ := strconv.Atoi(fd)
		_ = syscall.Close(n)
	}
	if os.Getenv("CLOSE") != "" {
		out, _ = os.Create(os.Getenv("OUT"))
	}
	cmd.Started = func(pid int) { fmt.Fprintln(out, pid) }
	run := cmd.Run(context.Background())
	_ = json.NewEncoder(out).Encode(run)
}

// runnerCmd is a process that runs cmd, as a guard does.
func runnerCmd(t *testing.T, exe string, cmd delegate.Cmd) *exec.Cmd {
	t.Helper()
	cmd.Started, cmd.Stderr = nil, nil
	job, err := json.Marshal(struct {
		Path           string
		Env            []string
		Stdin          []byte
		Timeout, Grace time.Duration
		SameGroup      bool
	}{cmd.Path, cmd.Env, cmd.Stdin, cmd.Timeout, cmd.Grace, cmd.SameGroup})
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(exe)
	c.Env = []string{"DELEGATE_TEST=runner", "JOB=" + string(job)}
	return c
}

var path = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}

// script is a delegate in sh.
func script(t *testing.T, body string) delegate.Cmd {
	t.Helper()
	file := filepath.Join(t.TempDir(), "delegate")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return delegate.Cmd{Path: file, Env: path}
}

// self is the test binary as a delegate.
func self(t *testing.T, role string, env ...string) delegate.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return delegate.Cmd{Path: exe, Env: append([]string{"DELEGATE_TEST=" + role}, env...)}
}

func run(t *testing.T, cmd delegate.Cmd) delegate.Run {
	t.Helper()
	return cmd.Run(t.Context())
}

// runUp runs a delegate into a timeout that comes after its first line of
// stdout: on a slow machine it is given more time.
func runUp(t *testing.T, cmd delegate.Cmd) (delegate.Run, time.Duration) {
	t.Helper()
	for cmd.Timeout = 200 * time.Millisecond; ; cmd.Timeout *= 4 {
		r := run(t, cmd)
		if len(r.Stdout) > 0 {
			return r, cmd.Timeout
		}
		if cmd.Timeout > time.Minute || r.End != delegate.TimedOut {
			t.Fatalf("no line in %v: %v, exit %d, err %v, stderr %s", cmd.Timeout, r.End, r.Exit, r.Err, r.Stderr)
		}
	}
}

func wantExit(t *testing.T, r delegate.Run, code int) {
	t.Helper()
	if r.End != delegate.Exited || r.Exit != code || r.Err != nil || r.Alive {
		t.Fatalf("got %v, exit %d, signal %v, err %v, alive %v; want exit %d\nstderr: %s",
			r.End, r.Exit, r.Signal, r.Err, r.Alive, code, r.Stderr)
	}
}

// number reads a pid that a delegate has printed.
func number(t *testing.T, text []byte) int {
	t.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 1 {
		t.Fatalf("not a pid: %q", text)
	}
	return pid
}

// gone says whether a process has ended; in some containers nobody reaps it.
func gone(pid int) bool {
	return syscall.Kill(pid, 0) == syscall.ESRCH || inState(pid, "Z") || inState(pid, "X")
}

func inState(pid int, state string) bool {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, state)
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never came: " + what)
		}
	}
}

func copyOfSelf(t *testing.T, to string, mode os.FileMode) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if text, err := exec.Command("cp", exe, to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if err := os.Chmod(to, mode); err != nil {
		t.Fatal(err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
