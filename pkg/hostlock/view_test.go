package hostlock_test

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/ipam-guard/ipam-guard/pkg/hostlock"
)

// viewOf is that of a lock file among those of its folder.
func viewOf(t *testing.T, path string) hostlock.View {
	t.Helper()
	views, err := hostlock.Look(filepath.Dir(path))
	must(t, err)
	for _, v := range views {
		if v.Path == path {
			return v
		}
	}
	t.Fatalf("%s is not among %+v", path, views)
	return hostlock.View{}
}

// Who holds a lock, who waits for it, and what is left when the holder is killed.
func TestLook(t *testing.T) {
	path := lockPath(t)
	must(t, os.WriteFile(filepath.Join(filepath.Dir(path), "notes.txt"), nil, 0o600))
	must(t, os.Mkdir(filepath.Join(filepath.Dir(path), "folder.lock"), 0o700))
	must(t, os.WriteFile(filepath.Join(filepath.Dir(path), "free.lock"), nil, 0o600))

	g := startGuard(t, path, "exec sleep 1000", false)
	v := viewOf(t, path)
	if !v.Held || v.Dead || v.PID != g.cmd.Process.Pid || v.Holder == nil || v.Holder.PID != v.PID || v.Holder.Container != "ctr" || len(v.Waiting) > 0 {
		t.Errorf("held: %+v, holder %+v", v, v.Holder)
	}
	if views, _ := hostlock.Look(filepath.Dir(path)); len(views) != 2 || views[1].Held || views[1].Holder != nil {
		t.Errorf("all: %+v", views)
	}

	// Somebody waits, and goes away again.
	waiter, err := os.Open(path)
	must(t, err)
	defer waiter.Close()
	done := make(chan error)
	go func() { done <- syscall.Flock(int(waiter.Fd()), syscall.LOCK_EX) }()
	eventually(t, "the waiter to be seen", func() bool { return slices.Equal(viewOf(t, path).Waiting, []int{os.Getpid()}) })

	// Its guard is killed: what it started has the lock.
	g.kill()
	if v := viewOf(t, path); !v.Held || !v.Dead || v.PID != g.cmd.Process.Pid {
		t.Errorf("its guard was killed: %+v", v)
	}
	must(t, syscall.Kill(-g.script, syscall.SIGKILL))
	must(t, <-done)
	must(t, syscall.Flock(int(waiter.Fd()), syscall.LOCK_UN))
	if v := viewOf(t, path); v.Held || v.Holder == nil || len(v.Waiting) > 0 {
		t.Errorf("left behind: %+v", v)
	}
}

// No folder has no locks; what is no folder is an error.
func TestLookNowhere(t *testing.T) {
	if views, err := hostlock.Look(filepath.Join(t.TempDir(), "missing")); err != nil || len(views) > 0 {
		t.Errorf("no folder: %v, %v", views, err)
	}
	path := lockPath(t)
	must(t, os.WriteFile(path, nil, 0o600))
	if _, err := hostlock.Look(path); err == nil {
		t.Error("a file in the folder's place: no error")
	}
}
