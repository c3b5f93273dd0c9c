//go:build integration || results

package containerd_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// containerd was started with a configuration that is nowhere near /etc: it says
// itself where its networks are, and doctor finds the one that nobody has guarded.
func TestDoctorAsksContainerd(t *testing.T) {
	for _, r := range releases() {
		t.Run(r.section, func(t *testing.T) {
			t.Parallel()
			c := newGuardctl(t, r)
			usual := "/run/containerd/containerd.sock"
			if out, err := c.Jail.Run(exec.Command("sh", "-c", "mkdir -p "+filepath.Dir(usual)+" && ln -s "+socket+" "+usual)); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			out := c.run(t, []string{"doctor"}, 3)
			for _, want := range []string{
				fmt.Sprintf("%s (answers): conf folder %s, plugins in %s (as the runtime says)", usual, c.ConfDir, c.Bin),
				fmt.Sprintf("network pods in %s is not guarded", c.conf),
			} {
				if !strings.Contains(out, want) {
					t.Errorf("not %q:\n%s", want, out)
				}
			}
		})
	}
}
