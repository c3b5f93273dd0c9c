//go:build results

package podman_test

import (
	"testing"

	"github.com/ipam-guard/ipam-guard/integration/internal/trial"
)

// TestResults is the complete table.
func TestResults(t *testing.T) {
	trial.Suite{
		Section: "podman", Name: "podman", Versions: versions(t), Kind: kind, Positions: trial.Positions(), Try: try, More: func(t *testing.T) string { return againTable(t) + "\n" + killedTable(t) },
	}.Results(t)
}
