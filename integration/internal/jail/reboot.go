package jail

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// Reboot is what a machine's reboot is to those who run on it: everybody is
// killed at once, what lay in memory is gone with all that was mounted there,
// and the kernel has another boot id. Disks stay.
func (j *Jail) Reboot(t testing.TB, id string) {
	t.Helper()
	guardtest.Eventually(t, "the end of all processes", func() bool {
		all := j.Processes(t)
		for _, p := range all {
			_ = unix.Kill(p.PID, unix.SIGKILL)
		}
		return len(all) == 0
	})
	var err error
	mounts := j.mounts(t, "/var/lib/")
	j.Do(func() {
		for _, m := range slices.Backward(mounts) { // the later ones are on top
			_ = unix.Unmount(m, unix.MNT_DETACH)
		}
		if err = unix.Unmount("/run", unix.MNT_DETACH); err == nil {
			err = unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=755")
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "boot_id")
	if err := os.WriteFile(file, []byte(id+"\n"), 0o444); err != nil {
		t.Fatal(err)
	}
	if err := j.Bind(file, "/proc/sys/kernel/random/boot_id"); err != nil {
		t.Fatal(err)
	}
}
