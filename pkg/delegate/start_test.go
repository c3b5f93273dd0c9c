package delegate_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ipam-guard/ipam-guard/pkg/delegate"
)

func TestStdinWhole(t *testing.T) {
	for _, size := range []int{0, 1, 100, 3 << 20} {
		cmd := script(t, "exec cat | exec wc -c")
		cmd.Stdin = make([]byte, size)
		r := run(t, cmd)
		wantExit(t, r, 0)
		if got := strings.TrimSpace(string(r.Stdout)); got != strconv.Itoa(size) {
			t.Errorf("the delegate read %s bytes; want %d", got, size)
		}
	}
}

func TestEnvironmentIsExact(t *testing.T) {
	t.Setenv("OURS", "must not be inherited")
	for _, env := range [][]string{
		nil,
		{"CNI_ARGS=A=1;B=2", "TWICE=1", "TWICE=2", "EMPTY=", "no equals sign", "LINES=1\n2"},
	} {
		r := run(t, delegate.Cmd{Path: "/usr/bin/env", Env: env})
		wantExit(t, r, 0)
		want := ""
		for _, e := range env {
			want += e + "\n"
		}
		if string(r.Stdout) != want {
			t.Errorf("environment %q; want %q", r.Stdout, want)
		}
	}
}

func TestArgvGroupAndSignals(t *testing.T) {
	for _, same := range []bool{false, true} {
		cmd := delegate.Cmd{Path: "/bin/sh", Env: path, Stdin: []byte(`
echo "$0"; cut -d" " -f5 /proc/$$/stat; grep SigIgn /proc/$$/status | cut -f2`)}
		cmd.SameGroup = same
		var pids []int
		cmd.Started = func(pid int) { pids = append(pids, pid) }
		r := run(t, cmd)
		wantExit(t, r, 0)
		lines := strings.Fields(string(r.Stdout))
		if len(pids) != 1 || len(lines) != 3 || lines[0] != cmd.Path {
			t.Fatalf("started %v, printed %q", pids, lines)
		}
		want := pids[0]
		if same {
			want = syscall.Getpgrp()
		}
		if lines[1] != strconv.Itoa(want) {
			t.Errorf("same group %v: group %s; want %d", same, lines[1], want)
		}
		ignored, err := strconv.ParseUint(lines[2], 16, 64)
		if err != nil || ignored&(1<<(syscall.SIGPIPE-1)) != 0 {
			t.Errorf("the delegate ignores SIGPIPE: %s", lines[2])
		}
	}
}

// The lock's descriptor goes to the delegate as 3, and nothing of ours with it.
func TestInherit(t *testing.T) {
	lock, err := os.Create(filepath.Join(t.TempDir(), "host.lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	cmd := script(t, `for fd in /proc/$$/fd/*; do echo "${fd##*/} $(readlink $fd)"; done; exit 0`)
	cmd.Inherit = []uintptr{lock.Fd()}
	r := run(t, cmd)
	wantExit(t, r, 0)
	holders := map[string][]string{}
	for line := range strings.Lines(string(r.Stdout)) {
		fd, target, _ := strings.Cut(strings.TrimSpace(line), " ")
		holders[target] = append(holders[target], fd)
		ours := strings.Contains(target, "eventfd") || strings.Contains(target, "pidfd")
		if stdio := fd <= "2" && len(fd) == 1; ours || stdio && !strings.Contains(target, "memfd:stdin") && !strings.HasPrefix(target, "pipe:") {
			t.Errorf("descriptor %s is %s", fd, target)
		}
	}
	if got := holders[lock.Name()]; !slices.Equal(got, []string{"3"}) {
		t.Errorf("the lock is held as %v\n%s", got, r.Stdout)
	}
	for target, fds := range holders {
		if len(fds) > 1 {
			t.Errorf("the delegate holds %s as %v", target, fds)
		}
	}
}

// A binary that is being installed is busy for a moment.
func TestBusyBinary(t *testing.T) {
	real, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	busy := filepath.Join(t.TempDir(), "busy")
	file, err := os.OpenFile(busy, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.Write(real); err != nil {
		t.Fatal(err)
	}

	const tooLong = 1500 * time.Millisecond // two seconds without these limits
	begin := time.Now()
	r := run(t, delegate.Cmd{Path: busy, Timeout: 100 * time.Millisecond})
	if r.End != delegate.NotStarted || !errors.Is(r.Err, syscall.ETXTBSY) || time.Since(begin) > tooLong {
		t.Errorf("busy beyond the timeout: %v, %v after %v", r.End, r.Err, time.Since(begin))
	}
	begin = time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	r = delegate.Cmd{Path: busy}.Run(ctx)
	if r.End != delegate.NotStarted || !errors.Is(r.Err, context.DeadlineExceeded) || time.Since(begin) > tooLong {
		t.Errorf("busy, and the caller went: %v, %v after %v", r.End, r.Err, time.Since(begin))
	}
	time.AfterFunc(100*time.Millisecond, func() { _ = file.Close() })
	wantExit(t, run(t, delegate.Cmd{Path: busy}), 0)
}

func TestNotStarted(t *testing.T) {
	cause := errors.New("the runtime has gone")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	started := false
	r := delegate.Cmd{Path: "/bin/true", Started: func(int) { started = true }}.Run(ctx)
	if r.End != delegate.NotStarted || !errors.Is(r.Err, cause) || started {
		t.Errorf("context done before: %v, %v, started %v", r.End, r.Err, started)
	}
	r = run(t, delegate.Cmd{Path: "/bin/true", Env: []string{"A=\x00"}})
	var missing *delegate.MissingError
	if r.End != delegate.NotStarted || r.Err == nil || errors.As(r.Err, &missing) {
		t.Errorf("bad environment: %v, %v", r.End, r.Err)
	}
	if zero := (delegate.Run{}); zero.End != delegate.NotStarted {
		t.Errorf("a zero Run reads as %v", zero.End)
	}
}

func TestClosedStdio(t *testing.T) {
	for _, closed := range []string{"0", "0 1 2", "1", "2"} {
		cmd := script(t, "cat; echo warning >&2; exit 7")
		cmd.Stdin = []byte("netconf")
		exe, _ := os.Executable()
		c := runnerCmd(t, exe, cmd)
		out := filepath.Join(t.TempDir(), "out")
		c.Env = append(c.Env, "CLOSE="+closed, "OUT="+out)
		if err := c.Run(); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		var r delegate.Run
		_, rest, _ := strings.Cut(string(text), "\n")
		if err := json.Unmarshal([]byte(rest), &r); err != nil {
			t.Fatalf("%v: %q", err, text)
		}
		wantExit(t, r, 7)
		if string(r.Stdout) != "netconf" || string(r.Stderr) != "warning\n" {
			t.Errorf("closed %s: stdout %q, stderr %q", closed, r.Stdout, r.Stderr)
		}
	}
}

// Case 9: when the guard is killed, its direct delegate dies with it.
func TestDiesWithItsRunner(t *testing.T) {
	exe, _ := os.Executable()
	c := runnerCmd(t, exe, script(t, "exec sleep 60"))
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 32)
	n, err := out.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	pid := number(t, line[:n])
	if gone(pid) {
		t.Fatal("the delegate has ended too early")
	}
	_ = c.Process.Kill()
	_, _ = io.Copy(io.Discard, out)
	_ = c.Wait()
	eventually(t, "the delegate's death", func() bool { return gone(pid) })
}

func TestNoDescriptorIsLeft(t *testing.T) {
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	noisy := script(t, "echo out; echo err >&2")
	noisy.Stderr = io.Discard
	slow := delegate.Cmd{Path: "/bin/sleep", Env: path, Timeout: time.Nanosecond}
	run(t, noisy)
	before := count()
	for i := range 1000 {
		switch {
		case i%10 == 1:
			run(t, delegate.Cmd{Path: "/absent"})
		case i%10 == 2:
			run(t, slow)
		case i%10 == 3:
			run(t, noisy)
		case i%10 == 4:
			run(t, delegate.WithoutPidFD(noisy))
		default:
			run(t, delegate.Cmd{Path: "/bin/true"})
		}
	}
	if after := count(); after > before {
		t.Errorf("%d descriptors before, %d after 1000 runs", before, after)
	}
}
