package delegate_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ipam-guard/ipam-guard/pkg/delegate"
)

// long is far more than any of these runs may take, and less than the minute
// for which their stubborn parts sleep.
const long = 20 * time.Second

func TestEnds(t *testing.T) {
	for _, tt := range []struct {
		body   string
		end    delegate.End
		exit   int
		signal syscall.Signal
	}{
		{"exit 0", delegate.Exited, 0, 0},
		{"exit 42", delegate.Exited, 42, 0},
		// Case 33: it dies of a signal that isn't ours.
		{"kill -KILL $$", delegate.Signaled, -1, syscall.SIGKILL},
		{"kill -SEGV $$", delegate.Signaled, -1, syscall.SIGSEGV},
		{"kill -TERM $$", delegate.Signaled, -1, syscall.SIGTERM},
	} {
		for name, cmd := range map[string]delegate.Cmd{
			"pidfd":    script(t, "echo out; echo err >&2\n"+tt.body),
			"no pidfd": delegate.WithoutPidFD(script(t, "echo out; echo err >&2\n"+tt.body)),
		} {
			cmd.Timeout = time.Minute
			r := run(t, cmd)
			if r.End != tt.end || r.Exit != tt.exit || r.Signal != tt.signal || r.Err != nil || r.Alive {
				t.Errorf("%s, %s: %v %d %v, err %v", tt.body, name, r.End, r.Exit, r.Signal, r.Err)
			}
			if string(r.Stdout) != "out\n" || string(r.Stderr) != "err\n" || r.Truncated {
				t.Errorf("%s, %s: stdout %q, stderr %q", tt.body, name, r.Stdout, r.Stderr)
			}
			if r.Took <= 0 || r.Took > long {
				t.Errorf("%s, %s: took %v", tt.body, name, r.Took)
			}
		}
	}
}

// One that is killed by somebody else, as by the kernel for want of memory, may
// have a child that is about to make a lease.
func TestDeathBySignalEndsTheGroup(t *testing.T) {
	body := "sleep 60 >/dev/null 2>&1 &\necho $!\nkill -KILL $$"
	for name, cmd := range map[string]delegate.Cmd{"pidfd": script(t, body), "no pidfd": delegate.WithoutPidFD(script(t, body))} {
		r := run(t, cmd)
		if r.End != delegate.Signaled || r.Signal != syscall.SIGKILL {
			t.Errorf("%s: %v, signal %v", name, r.End, r.Signal)
		}
		if child := number(t, r.Stdout); !gone(child) {
			t.Errorf("%s: its child %d works on", name, child)
		}
	}
}

// What SIGTERM can do is left to SIGTERM.
func TestTimeoutIsPoliteFirst(t *testing.T) {
	cmd := script(t, `trap 'echo bye; exit 9' TERM; echo up; while :; do sleep 0.01; done`)
	cmd.Grace = time.Minute
	r, timeout := runUp(t, cmd)
	if r.End != delegate.TimedOut || r.Exit != 9 || string(r.Stdout) != "up\nbye\n" {
		t.Errorf("%v, exit %d, stdout %q", r.End, r.Exit, r.Stdout)
	}
	if r.Took < timeout || r.Took > timeout+long {
		t.Errorf("took %v; the timeout is %v", r.Took, timeout)
	}
}

// Case 28: a delegate that ignores SIGTERM is ended all the same, and does
// nothing any more afterwards (danm #165).
func TestTimeoutEndsTheStubborn(t *testing.T) {
	for name, wrap := range map[string]func(delegate.Cmd) delegate.Cmd{
		"pidfd":    func(c delegate.Cmd) delegate.Cmd { return c },
		"no pidfd": delegate.WithoutPidFD,
		"same group": func(c delegate.Cmd) delegate.Cmd {
			c.SameGroup = true
			return c
		},
		"default grace": func(c delegate.Cmd) delegate.Cmd {
			c.Grace = 0
			return c
		},
	} {
		cmd := script(t, `trap '' TERM; echo $$; while :; do sleep 0.01; done`)
		cmd.Grace = 200 * time.Millisecond
		cmd = wrap(cmd)
		grace := cmd.Grace
		if grace == 0 {
			grace = time.Second
		}
		r, timeout := runUp(t, cmd)
		if r.End != delegate.TimedOut || r.Signal != syscall.SIGKILL || r.Alive {
			t.Errorf("%s: %v, signal %v, alive %v", name, r.End, r.Signal, r.Alive)
		}
		if r.Took < timeout+grace || r.Took > timeout+long {
			t.Errorf("%s: took %v", name, r.Took)
		}
		if pid := number(t, r.Stdout); syscall.Kill(pid, 0) == nil {
			t.Errorf("%s: %d still there, not reaped", name, pid)
		}
	}
}

// The leader goes at SIGTERM, a member of its group doesn't.
func TestTimeoutEndsTheGroup(t *testing.T) {
	cmd := script(t, `sh -c 'trap "" TERM; echo $$; while :; do sleep 1; done' & wait`)
	cmd.Grace = time.Minute
	r, timeout := runUp(t, cmd)
	if r.End != delegate.TimedOut || r.Signal != syscall.SIGTERM || r.Took > timeout+long {
		t.Fatalf("%v, signal %v, took %v", r.End, r.Signal, r.Took)
	}
	member := number(t, r.Stdout)
	eventually(t, "the member's death", func() bool { return gone(member) })
}

// Who runs next must not meet what is still dying of the one before.
func TestTimeoutOutlastsTheGroup(t *testing.T) {
	cmd := script(t, "DELEGATE_TEST=large "+os.Args[0]+" & wait")
	cmd.Grace = time.Minute
	r, _ := runUp(t, cmd)
	pid, _, _ := strings.Cut(string(r.Stdout), " ")
	if member := number(t, []byte(pid)); r.End != delegate.TimedOut || !gone(member) {
		t.Errorf("%v, and process %d is still there", r.End, member)
	}
}

// The polite signal goes to the group as well: the leader waits for a member.
func TestTimeoutAsksTheGroup(t *testing.T) {
	cmd := script(t, `trap 'wait; exit 9' TERM; sh -c 'trap "echo bye; exit" TERM; echo up; while :; do sleep 0.01; done' & wait`)
	cmd.Grace = time.Minute
	r, timeout := runUp(t, cmd)
	if r.End != delegate.TimedOut || r.Exit != 9 || string(r.Stdout) != "up\nbye\n" || r.Took > timeout+long {
		t.Errorf("%v, exit %d, signal %v, stdout %q, took %v", r.End, r.Exit, r.Signal, r.Stdout, r.Took)
	}
}

// A delegate that has left its group is ended too.
func TestTimeoutOfOneThatLeftItsGroup(t *testing.T) {
	cmd := self(t, "leave", path...)
	cmd.Grace = time.Minute
	r, timeout := runUp(t, cmd)
	if r.End != delegate.TimedOut || r.Took > timeout+long {
		t.Errorf("%v, exit %d, took %v, stderr %s", r.End, r.Exit, r.Took, r.Stderr)
	}
}

// SIGKILL ends a stopped delegate, which SIGTERM doesn't reach.
func TestInterruptedWhileStopped(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	cmd := script(t, `kill -STOP $$; echo never`)
	cmd.Grace = 100 * time.Millisecond
	cmd.Started = func(pid int) {
		go func() {
			for end := time.Now().Add(long); !inState(pid, "T") && time.Now().Before(end); {
				time.Sleep(5 * time.Millisecond)
			}
			cancel()
		}()
	}
	r := cmd.Run(ctx)
	if r.End != delegate.Interrupted || r.Signal != syscall.SIGKILL || len(r.Stdout) > 0 {
		t.Errorf("%v, signal %v, took %v, stdout %q", r.End, r.Signal, r.Took, r.Stdout)
	}
}

func TestInterrupted(t *testing.T) {
	for name, wrap := range map[string]func(delegate.Cmd) delegate.Cmd{
		"pidfd":    func(c delegate.Cmd) delegate.Cmd { return c },
		"no pidfd": delegate.WithoutPidFD,
	} {
		ctx, cancel := context.WithCancel(context.Background())
		cmd := script(t, `sh -c 'trap "" TERM; echo $$ >&2; while :; do sleep 1; done' & wait`)
		cmd.Grace = time.Minute
		cmd.Stderr = writerFunc(func(p []byte) (int, error) { cancel(); return len(p), nil })
		r := wrap(cmd).Run(ctx)
		cancel()
		if r.End != delegate.Interrupted || r.Took > long {
			t.Errorf("%s: %v, took %v", name, r.End, r.Took)
		}
		member := number(t, r.Stderr)
		eventually(t, "the member's death", func() bool { return gone(member) })
	}
}

// A context that ends after the run, or during another, disturbs nobody.
func TestContextEndsLate(t *testing.T) {
	for range 200 {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); cancel() }()
		r := delegate.Cmd{Path: "/bin/true"}.Run(ctx)
		<-done
		if r.End != delegate.Exited && r.End != delegate.Interrupted && !errors.Is(r.Err, context.Canceled) {
			t.Fatalf("%v, %v", r.End, r.Err)
		}
	}
}

// A grandchild that keeps stdout and stderr open adds nothing; and Case 67: a
// daemon lives on after a normal end.
func TestDaemonLivesOn(t *testing.T) {
	for name, wrap := range map[string]func(delegate.Cmd) delegate.Cmd{
		"pidfd":    func(c delegate.Cmd) delegate.Cmd { return c },
		"no pidfd": delegate.WithoutPidFD,
	} {
		folder := t.TempDir()
		cmd := script(t, `cd `+folder+`
(for i in $(seq 6000); do [ -e asked ] && : >answered && exit; sleep 0.01; done) & echo $!`)
		cmd.Timeout = time.Minute
		r := run(t, wrap(cmd))
		wantExit(t, r, 0)
		if r.Took > long {
			t.Errorf("%s: waited for the grandchild: %v", name, r.Took)
		}
		number(t, r.Stdout)
		write(t, filepath.Join(folder, "asked"), "")
		eventually(t, "a sign of life of the daemon", func() bool {
			_, err := os.Stat(filepath.Join(folder, "answered"))
			return err == nil
		})
	}
}

// Neither does one that never stops writing.
func TestGrandchildThatWritesForEver(t *testing.T) {
	cmd := script(t, `yes & echo $! >&2`)
	r := run(t, cmd)
	pid := number(t, r.Stderr)
	defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }()
	wantExit(t, r, 0)
	if r.Took > long {
		t.Errorf("took %v", r.Took)
	}
}

// A process that SIGKILL doesn't end is left behind, and said so. Here it is
// another user's, in life one that is stuck in the kernel.
func TestAlive(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can make a process that another user can't signal")
	}
	folder, err := os.MkdirTemp("", "alive")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(folder)
	exe, setuid := filepath.Join(folder, "runner"), filepath.Join(folder, "setuid")
	copyOfSelf(t, exe, 0o755)
	copyOfSelf(t, setuid, 0o755|os.ModeSetuid)
	const nobody = 65534 // and no other user may get at a setuid file
	if err := errors.Join(os.Chown(folder, 0, nobody), os.Chmod(folder, 0o750)); err != nil {
		t.Fatal(err)
	}

	c := runnerCmd(t, exe, delegate.Cmd{
		Path: setuid, Env: []string{"DELEGATE_TEST=root"},
		Timeout: 3 * time.Second, Grace: 100 * time.Millisecond,
	})
	c.Dir = "/"
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	reader := bufio.NewReader(out)
	if _, err := fmt.Fscanln(reader, &pid); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }()
	var r delegate.Run
	if err := json.NewDecoder(reader).Decode(&r); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, reader)
	if err := c.Wait(); err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(string(r.Stdout), "not root") {
		t.Skip("the temporary folder is mounted nosuid: no process to be had that can't be killed")
	}
	if r.End != delegate.TimedOut || !r.Alive || r.Exit != -1 || string(r.Stdout) != "root\n" {
		t.Errorf("%v, alive %v, exit %d, stdout %q, err %v", r.End, r.Alive, r.Exit, r.Stdout, r.Err)
	}
	if gone(pid) {
		t.Error("it was to be alive")
	}
	if least := 3*time.Second + 100*time.Millisecond + time.Second; r.Took < least || r.Took > least+long {
		t.Errorf("took %v; want a little more than %v", r.Took, least)
	}
}
