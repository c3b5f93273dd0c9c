package hostlock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ipam-guard/ipam-guard/pkg/hostlock"
)

// work is what a delegate does that outlives its guard: it would go on for long. The shell itself may end.
const work = "exec sleep 300"

// Case 9 (cilium #9913, containerd #5438): the lock outlives the guard, as long as its delegate works. A delegate that
// nothing ties to a dead guard is left alone.
func TestLockLivesAsLongAsTheDelegate(t *testing.T) {
	path := lockPath(t)
	end := path + ".end"
	g := startGuard(t, path, "until [ -e "+end+" ]; do sleep 0.05; done", false)
	g.kill()
	var w warnings
	ctx, cancel := context.WithTimeout(context.Background(), 1500*time.Millisecond) // several looks
	defer cancel()
	_, err := hostlock.Acquire(ctx, time.Time{}, path, hostlock.Holder{}, w.add)
	var busy *hostlock.BusyError
	if !errors.As(err, &busy) || !running(g.script) || w.lines != nil {
		t.Fatalf("got %v, delegate running: %t, warnings %q", err, running(g.script), w.lines)
	}
	must(t, os.WriteFile(end, nil, 0o600))
	acquire(t, path)
}

// Case 9's twin: what a dead guard left behind is killed by whoever waits.
func TestOrphansAreKilled(t *testing.T) {
	bystander := fmt.Sprintf(`{"pid":%d,"pidns":%d}`, os.Getpid(), pidns(t)) // lives, but holds nothing
	for name, test := range map[string]struct {
		script string
		group  bool
		mark   bool
		says   string // what the file says, if not what the guard wrote
	}{
		"by process group":                {script: work, group: true},
		"by mark, no group noted yet":     {script: work, mark: true},
		"by mark, nothing readable":       {script: work, mark: true, says: "junk"},
		"by mark, file names a bystander": {script: work, mark: true, says: bystander},
		"grandchild, by group":            {script: "sleep 300 & exec sleep 300", group: true},
		"own session, by mark":            {script: "setsid sleep 300 & echo $! >PIDFILE", group: true, mark: true},
	} {
		t.Run(name, func(t *testing.T) {
			path := lockPath(t)
			pidFile := path + ".pid"
			g := startGuard(t, path, strings.ReplaceAll(test.script, "PIDFILE", pidFile), test.mark)
			orphan := g.script
			if strings.Contains(test.script, "PIDFILE") {
				eventually(t, "the orphan has left the process group", func() bool {
					b, _ := os.ReadFile(pidFile)
					orphan, _ = strconv.Atoi(strings.TrimSpace(string(b)))
					pgid, err := syscall.Getpgid(orphan)
					return orphan > 0 && err == nil && pgid == orphan && !running(g.script)
				})
			}
			if test.group {
				g.do("group")
			}
			if test.says != "" {
				must(t, os.WriteFile(path, []byte(test.says), 0o600))
			}
			g.kill()
			if !running(orphan) {
				t.Fatal("the delegate died with its guard: nothing is tested")
			}
			var w warnings
			ctx, cancel := context.WithTimeout(context.Background(), bound)
			defer cancel()
			l, err := hostlock.Acquire(ctx, time.Time{}, path, hostlock.Holder{}, w.add)
			must(t, err)
			defer l.Unlock()
			eventually(t, "the orphan is gone", func() bool { return !running(orphan) })
			all := strings.Join(w.lines, "\n")
			for _, want := range []string{fmt.Sprintf("process %d ", orphan), fmt.Sprintf("pid %d", g.cmd.Process.Pid), path, "killed"} {
				if !strings.Contains(all, want) {
					t.Errorf("%q lacks %q", all, want)
				}
			}
		})
	}
}

// The guard dies while others are waiting already.
func TestGuardDiesWhileWaitedFor(t *testing.T) {
	path := lockPath(t)
	g := startGuard(t, path, work, true)
	g.do("group")
	got := make(chan *hostlock.Lock)
	go func() { got <- acquire(t, path) }()
	eventually(t, "it waits", func() bool { return queued(t, path) == 1 })
	time.Sleep(100 * time.Millisecond) // past its first look, most likely
	select {
	case <-got:
		t.Fatal("locked while a living guard held the lock")
	default:
	}
	if !running(g.script) {
		t.Fatal("a living guard's delegate was killed")
	}
	must(t, g.cmd.Process.Kill()) // and not reaped: a zombie is dead, too
	<-got
}

// Who waits looks again: what can't be told to be an orphan at first may be one later.
func TestLooksAgain(t *testing.T) {
	path := lockPath(t)
	g := startGuard(t, path, "env -i setsid sleep 300 & echo $! >"+path+".pid; "+work, true)
	var unmarked int // has neither the mark nor the process group
	eventually(t, "the unmarked one has a session of its own", func() bool {
		b, _ := os.ReadFile(path + ".pid")
		unmarked, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		pgid, err := syscall.Getpgid(unmarked)
		return unmarked > 0 && err == nil && pgid == unmarked
	})
	t.Cleanup(func() { _ = syscall.Kill(-unmarked, syscall.SIGKILL) })
	g.kill()

	warned, got := make(chan string, 100), make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), bound)
		defer cancel()
		l, err := hostlock.Acquire(ctx, time.Time{}, path, hostlock.Holder{}, func(s string) { warned <- s })
		if err == nil {
			err = l.Unlock()
		}
		close(warned)
		got <- err
	}()
	if w := <-warned; !strings.Contains(w, fmt.Sprintf("process %d ", g.script)) {
		t.Fatalf("killed first: %s", w)
	}
	if !running(unmarked) {
		t.Fatal("killed a process that nothing ties to a dead guard")
	}
	writeHolder(t, path, hostlock.Holder{PID: deadPID(t), Start: 1, PGID: unmarked, PIDNS: pidns(t)})
	must(t, <-got)
	if w := <-warned; !strings.Contains(w, fmt.Sprintf("process %d ", unmarked)) {
		t.Errorf("killed next: %s", w)
	}
}

// A living guard's delegate is safe, whatever the file says about its process group.
func TestLivingGuardsDelegateIsNotKilled(t *testing.T) {
	path := lockPath(t)
	g := startGuard(t, path, work, true)
	h := hostlock.Holder{PID: deadPID(t), Start: 1, PGID: g.script, PIDNS: pidns(t)}
	writeHolder(t, path, h)
	stillBusy(t, path)
	if !running(g.script) {
		t.Error("killed")
	}
}

// The same in the middle of an execve, when for a moment its environment can't be seen. This one does nothing else.
func TestLivingGuardsDelegateInExecIsNotKilled(t *testing.T) {
	path := lockPath(t)
	g := startGuard(t, path, `exec sh -c "$HOSTLOCK_TEST_SCRIPT"`, true)
	writeHolder(t, path, hostlock.Holder{PID: deadPID(t), Start: 1, PGID: g.script, PIDNS: pidns(t)})
	for range 50 { // each looks once, right away
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		_, err := hostlock.Acquire(ctx, time.Time{}, path, hostlock.Holder{}, func(s string) { t.Error(s) })
		cancel()
		if err == nil || !running(g.script) {
			t.Fatal("killed")
		}
	}
}

// A daemon that a delegate started has inherited the descriptor. After a normal Unlock it holds nothing, and nobody
// kills it: not for having the file open, not for its dead guard, not for what the file says.
func TestDaemonAfterNormalUnlockLives(t *testing.T) {
	path := lockPath(t)
	g := startGuard(t, path, work, true)
	g.do("group")
	stale, err := os.ReadFile(path)
	must(t, err)
	g.do("unlock")
	must(t, func() error { l := acquire(t, path); return l.Unlock() }())
	g.kill()
	must(t, os.WriteFile(path, stale, 0o600))

	foreign := startForeign(t, path) // so that there is something to wait for
	stillBusy(t, path)
	if !running(g.script) {
		t.Error("the daemon was killed")
	}
	if !running(foreign) {
		t.Error("a foreign process that holds the lock was killed")
	}
}

// A process of the named group is killed only if the holder is dead, in our pid namespace, and the process holds the
// lock.
func TestStaleContentKillsNobody(t *testing.T) {
	for name, change := range map[string]func(*hostlock.Holder){
		"holder lives":             func(h *hostlock.Holder) { h.PID, h.Start = os.Getpid(), 0 },
		"other pid namespace":      func(h *hostlock.Holder) { h.PIDNS++ },
		"unknown pid namespace":    func(h *hostlock.Holder) { h.PIDNS = 0 },
		"another process group":    func(h *hostlock.Holder) { h.PGID++ },
		"no process group":         func(h *hostlock.Holder) { h.PGID = 0 },
		"start of another process": nil, // the counter-example: this one is dead
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := lockPath(t)
			foreign := startForeign(t, path)
			h := hostlock.Holder{PID: os.Getpid(), Start: 1, PGID: foreign, PIDNS: pidns(t)}
			if change == nil {
				writeHolder(t, path, h)
				acquire(t, path)
				return
			}
			change(&h)
			writeHolder(t, path, h)
			stillBusy(t, path)
			if !running(foreign) {
				t.Error("killed")
			}
		})
	}
}

// stillBusy waits for the lock in vain, long enough for a first look at who holds it.
func stillBusy(t *testing.T, path string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err := hostlock.Acquire(ctx, time.Time{}, path, hostlock.Holder{}, func(s string) { t.Error(s) })
	var busy *hostlock.BusyError
	if !errors.As(err, &busy) {
		t.Errorf("got %v", err)
	}
}

func writeHolder(t *testing.T, path string, h hostlock.Holder) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(fmt.Sprintf(`{"pid":%d,"start":%d,"pgid":%d,"pidns":%d}`, h.PID, h.Start, h.PGID, h.PIDNS)), 0o600))
}

// pidns asks the package itself: what it notes about a holder.
func pidns(t *testing.T) uint64 {
	t.Helper()
	path := lockPath(t)
	acquire(t, path)
	_, err := hostlock.TryAcquire(path, hostlock.Holder{}, nil)
	var busy *hostlock.BusyError
	if !errors.As(err, &busy) || busy.Holder == nil {
		t.Fatalf("got %v", err)
	}
	return busy.Holder.PIDNS
}

// deadPID is the pid of a process that has ended.
func deadPID(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("true")
	must(t, cmd.Run())
	return cmd.Process.Pid
}
