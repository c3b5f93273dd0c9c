//go:build integration || results

package containerd_test

import (
	"os"
	"path/filepath"

	"github.com/ipam-guard/ipam-guard/integration/internal/trial"
	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// shell is the netconf of a delegate that is a script of the test's.
func shell(*guardtest.Node) guardtest.Object { return guardtest.Object{"type": "shell"} }

// exists tells whether a file is in the folder that the script works in.
func exists(m *trial.Machine, name string) bool {
	_, err := os.Stat(filepath.Join(m.FakeDir, name))
	return err == nil
}
