//go:build integration || results

package podman_test

import (
	"testing"

	"github.com/ipam-guard/ipam-guard/integration/internal/trial"
)

// kind is what it is: no daemon, and it waits as long as a plugin takes.
var kind = trial.Kind{}

// try is one cell of the table. It is asked for a release once: what a DEL
// answers is not acted on.
func try(t *testing.T, p trial.Position, f trial.Fault) *trial.Trial {
	m, _ := newMachine(t, p, trial.Network{Name: "pods", Settings: f.Guard})
	r := m.Try(t, f)
	r.Check(t, false)
	return r
}

// What matters most, as a part of make integration.
func TestFaults(t *testing.T) {
	for _, f := range trial.Short(kind) {
		t.Run(trial.ID(f.Name), func(t *testing.T) {
			t.Parallel()
			try(t, trial.IPAM(), f)
		})
	}
}
