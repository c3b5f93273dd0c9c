//go:build results

package containerd_test

import (
	"testing"

	"github.com/ipam-guard/ipam-guard/integration/internal/trial"
)

// TestResults is the complete table.
func TestResults(t *testing.T) {
	for _, r := range releases() {
		trial.Suite{
			Section: r.section, Name: r.name, Versions: r.versions(t), Kind: kind, Positions: r.positions(),
			Try: func(t *testing.T, p trial.Position, f trial.Fault) *trial.Trial { return try(t, r, p, f) },
		}.Results(t)
	}
}
