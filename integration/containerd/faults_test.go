//go:build integration || results

package containerd_test

import (
	"testing"

	"github.com/ipam-guard/ipam-guard/integration/internal/trial"
)

// kind is what it is.
var kind = trial.Kind{Daemon: true, Kills: true}

// try is one cell of the table.
func try(t *testing.T, r release, p trial.Position, f trial.Fault) *trial.Trial {
	m, _ := newMachine(t, r, p, f.Guard)
	result := m.Try(t, f)
	result.Check(t, true)
	if t.Failed() {
		t.Logf("%+v", result)
	}
	return result
}

// positions are those that a release can do: the shadow takes a list of folders.
func (r release) positions() []trial.Position {
	if r.cniVersion == "1.0.0" {
		return []trial.Position{trial.None(), trial.IPAM()}
	}
	return trial.Positions()
}

// What matters most, as a part of make integration.
func TestFaults(t *testing.T) {
	for _, r := range releases()[1:] {
		for _, f := range trial.Short(kind) {
			for _, p := range []trial.Position{trial.IPAM()} {
				t.Run(trial.ID(f.Name)+"/"+trial.ID(p.Name), func(t *testing.T) {
					t.Parallel()
					try(t, r, p, f)
				})
			}
		}
	}
}
