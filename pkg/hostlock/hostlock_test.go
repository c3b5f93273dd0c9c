package hostlock_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ipam-guard/ipam-guard/pkg/hostlock"
)

func TestUncontended(t *testing.T) {
	path := filepath.Join(t.TempDir(), "missing", "folder", "x.lock")
	l := acquire(t, path)
	if l.Waited() > bound/2 {
		t.Errorf("waited %v for nobody", l.Waited())
	}
	if _, ok := l.FD(); !ok {
		t.Error("no descriptor")
	}
	_, err := hostlock.TryAcquire(path, hostlock.Holder{}, nil)
	var busy *hostlock.BusyError
	if !errors.As(err, &busy) || busy.Cause != nil || busy.Holder == nil || busy.Holder.PID != os.Getpid() {
		t.Errorf("TryAcquire of a held lock: %#v", err)
	}
	must(t, l.Unlock())
	must(t, l.Unlock())
	if _, ok := l.FD(); ok {
		t.Error("a descriptor after Unlock")
	}
	l.Group(1234)
	if b, err := os.ReadFile(path); err != nil || len(b) != 0 {
		t.Errorf("after Unlock the file names a holder: %q, %v", b, err)
	}
	l2, err := hostlock.TryAcquire(path, hostlock.Holder{}, nil)
	must(t, err)
	must(t, l2.Unlock())
}

// Others in the process may have the file open, under lower numbers too: the delegate must get what holds the lock.
func TestDescriptorIsTheLockedOne(t *testing.T) {
	path := lockPath(t)
	other, err := os.Create(path)
	must(t, err)
	defer other.Close()
	l := acquire(t, path)
	fd, ok := l.FD()
	if !ok || fd == other.Fd() || !sameFile(t, fd, path) {
		t.Fatalf("descriptor %d, %t; another one of the file is %d", fd, ok, other.Fd())
	}
	if err := syscall.Flock(int(other.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != syscall.EWOULDBLOCK {
		t.Errorf("not locked after the search for the descriptor: %v", err)
	}
}

func TestHandover(t *testing.T) {
	path := lockPath(t)
	g := startGuard(t, path, "", false)
	var released atomic.Bool
	time.AfterFunc(300*time.Millisecond, func() { released.Store(true); _, _ = g.in.Write([]byte("unlock\n")) })
	l := acquire(t, path)
	if !released.Load() {
		t.Error("locked while another process held the lock")
	}
	if w := l.Waited(); w < 100*time.Millisecond || w > bound {
		t.Errorf("waited %v", w)
	}
}

// Case 3 (azure-container-networking #1359): all get it, none starves, even beside one that never stops asking.
func TestNobodyStarves(t *testing.T) {
	path := lockPath(t)
	first := acquire(t, path)
	const n = 30
	var inside, worst atomic.Int32
	var all, greedy sync.WaitGroup
	use := func() {
		l := acquire(t, path)
		worst.Store(max(worst.Load(), inside.Add(1)))
		time.Sleep(time.Millisecond)
		inside.Add(-1)
		if err := l.Unlock(); err != nil {
			t.Error(err)
		}
	}
	for range n {
		all.Go(use)
	}
	eventually(t, "all wait", func() bool { return queued(t, path) == n })
	var stop atomic.Bool
	greedy.Go(func() {
		for !stop.Load() {
			use()
		}
	})
	must(t, first.Unlock())
	all.Wait() // acquire fails after its bound
	stop.Store(true)
	greedy.Wait()
	if worst.Load() != 1 {
		t.Errorf("%d held the lock at a time", worst.Load())
	}
}

// Case 4 (azure-container-networking #289, #186).
func TestDeadline(t *testing.T) {
	path := lockPath(t)
	g := startGuard(t, path, "", false)
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	_, err := hostlock.Acquire(ctx, time.Time{}, path, hostlock.Holder{}, nil)
	var busy *hostlock.BusyError
	if !errors.As(err, &busy) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	if busy.Waited < 100*time.Millisecond || busy.Waited > bound || busy.Path != path {
		t.Errorf("waited %v for %s", busy.Waited, busy.Path)
	}
	h := busy.Holder
	if h == nil || h.PID != g.cmd.Process.Pid || h.Start == 0 || h.PIDNS == 0 || h.Since.IsZero() {
		t.Fatalf("holder %+v", h)
	}
	for _, want := range []string{path, h.String(), busy.Waited.Round(time.Millisecond).String(), `"DEL"`, `"net"`, `"ctr"`, `"eth0"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q doesn't name %s", err, want)
		}
	}
}

func TestCancel(t *testing.T) {
	path := lockPath(t)
	l := acquire(t, path)
	why := errors.New("the runtime is gone")
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan error)
	go func() {
		_, err := hostlock.Acquire(ctx, time.Time{}, path, hostlock.Holder{}, nil)
		done <- err
	}()
	eventually(t, "it waits", func() bool { return queued(t, path) == 1 })
	cancel(why)
	var busy *hostlock.BusyError
	if err := <-done; !errors.As(err, &busy) || !errors.Is(err, why) || !strings.Contains(err.Error(), why.Error()) {
		t.Errorf("got %v", err)
	}
	// The wait that was given up succeeds now, and unlocks itself.
	must(t, l.Unlock())
	acquire(t, path)

	if _, err := hostlock.Acquire(ctx, time.Time{}, lockPath(t), hostlock.Holder{}, nil); !errors.As(err, &busy) {
		t.Errorf("a context that is done from the start: %v", err)
	}
}

// Whoever has the lock has the file that the path names.
func TestFileReplacedWhileWaiting(t *testing.T) {
	for name, replace := range map[string]func(path string) error{
		"removed": os.Remove,
		"replaced": func(path string) error {
			must(t, os.WriteFile(path+".new", nil, 0o600))
			return os.Rename(path+".new", path)
		},
		"folder removed": func(path string) error { return os.RemoveAll(filepath.Dir(path)) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "locks", "x.lock")
			old := acquire(t, path)
			got := make(chan *hostlock.Lock)
			go func() { got <- acquire(t, path) }()
			eventually(t, "it waits", func() bool { return queued(t, path) == 1 })
			must(t, replace(path))
			must(t, old.Unlock())
			l := <-got
			fd, _ := l.FD()
			if !sameFile(t, fd, path) {
				t.Error("the lock is held on a file that is gone")
			}
			if _, err := hostlock.TryAcquire(path, hostlock.Holder{}, nil); err == nil {
				t.Error("two hold the lock")
			}
		})
	}
}

func BenchmarkAcquireUnlock(b *testing.B) {
	path := lockPath(b)
	for b.Loop() {
		l, err := hostlock.Acquire(context.Background(), time.Time{}, path, hostlock.Holder{Verb: "ADD", Network: "net"}, nil)
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Unlock(); err != nil {
			b.Fatal(err)
		}
	}
}
