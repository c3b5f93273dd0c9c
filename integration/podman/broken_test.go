//go:build integration || results

package podman_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ipam-guard/ipam-guard/integration/internal/trial"
)

// breakHostLocal puts a plugin in host-local's place that fails each DEL, until
// mendHostLocal.
func breakHostLocal(t *testing.T, m *trial.Machine) {
	t.Helper()
	real := filepath.Join(m.Bin, "host-local")
	if err := os.Rename(real, real+".real"); err != nil {
		t.Fatal(err)
	}
	m.InstallScript(t, "host-local", `
if [ "$CNI_COMMAND" = DEL ]; then
	echo '{"cniVersion": "1.0.0", "code": 100, "msg": "the pool server is on fire"}'
	exit 1
fi
exec "$0.real"`)
}

func mendHostLocal(t *testing.T, m *trial.Machine) {
	t.Helper()
	real := filepath.Join(m.Bin, "host-local")
	if err := os.Rename(real+".real", real); err != nil {
		t.Fatal(err)
	}
}
