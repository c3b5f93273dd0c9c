package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// plugin is a process that looks like a running plugin.
func plugin(t *testing.T, cniPath string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "infinity")
	cmd.Env = []string{"CNI_COMMAND=ADD", "CNI_PATH=" + cniPath}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

// uninstall waits for calls that may still look for the guard in its folder,
// under whatever name they know that, and for no others.
func TestSettle(t *testing.T) {
	dir := t.TempDir()
	other, link := filepath.Join(dir, "other"), filepath.Join(dir, "link")
	bin := filepath.Join(dir, "bin")
	for _, d := range []string{bin, other} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(bin, link); err != nil {
		t.Fatal(err)
	}
	plugin(t, other)
	byName, byLink := plugin(t, other+":"+bin+"/"), plugin(t, link)
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if n := settle(t.Context(), []string{bin}); n != 2 || time.Since(began) < lastCall {
			t.Errorf("%d calls are left after %s, want 2 and the whole time", n, time.Since(began))
		}
		_ = byName.Process.Kill()
		_ = byName.Wait()
		began = time.Now()
		go func() {
			time.Sleep(5 * time.Second)
			_ = byLink.Process.Kill()
			_ = byLink.Wait()
		}()
		if n := settle(t.Context(), []string{bin}); n != 0 || time.Since(began) < 5*time.Second || time.Since(began) > 10*time.Second {
			t.Errorf("%d calls are left after %s, want none after 5 s", n, time.Since(began))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began = time.Now()
		settle(ctx, []string{bin})
		if time.Since(began) > 0 {
			t.Errorf("interrupted, it waited for %s", time.Since(began))
		}
	})
}
