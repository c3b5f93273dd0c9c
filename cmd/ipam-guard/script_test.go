package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// What a person sees: testdata/script.
func TestScript(t *testing.T) {
	t.Parallel()
	guard, fake := guardtest.Build(t, guardtest.Guard), guardtest.Build(t, guardtest.Fake)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			bin := filepath.Join(env.WorkDir, "bin")
			env.Setenv("PATH", bin+":"+env.Getenv("PATH"))
			env.Setenv("CNI_PATH", bin)
			env.Setenv("CNI_CONTAINERID", "web-0")
			env.Setenv("CNI_IFNAME", "eth0")
			env.Setenv("CNI_NETNS", "/proc/self/ns/net")
			env.Setenv("FAKEIPAM_DIR", filepath.Join(env.WorkDir, "fake"))
			if err := os.Mkdir(bin, 0o755); err != nil {
				return err
			}
			node := fmt.Sprintf(`{"defaults": {"lockDir": %q, "stateDir": %q, "log": {"file": %q}}}`, env.WorkDir+"/lock", env.WorkDir+"/state", env.WorkDir+"/log")
			if err := os.WriteFile(filepath.Join(env.WorkDir, "node-config.json"), []byte(node), 0o600); err != nil {
				return err
			}
			if err := os.Symlink(guard, filepath.Join(bin, "ipam-guard")); err != nil {
				return err
			}
			return os.Symlink(fake, filepath.Join(bin, "fake"))
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"hold": hold},
	})
}

// hold takes the lock on a file until the end of the script.
func hold(ts *testscript.TestScript, _ bool, args []string) {
	f, err := os.OpenFile(ts.MkAbs(args[0]), os.O_RDWR, 0)
	ts.Check(err)
	ts.Defer(func() { f.Close() })
	ts.Check(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB))
}
