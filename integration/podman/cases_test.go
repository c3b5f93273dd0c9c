//go:build integration || results

package podman_test

import (
	"testing"
	"time"

	"github.com/ipam-guard/ipam-guard/integration/internal/trial"
	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

const long = 2 * time.Minute

// Containers come and go with the real host-local, wherever the guard sits.
func TestContainer(t *testing.T) {
	for _, p := range trial.Most(complete, trial.Shadow(), trial.IPAM(), trial.Plugin(), trial.None()) {
		t.Run(trial.ID(p.Name), func(t *testing.T) {
			t.Parallel()
			m, _ := newMachine(t, p, trial.Network{Name: "pods", Delegate: trial.RealHostLocal})
			for _, name := range []string{"first", "second"} {
				c := m.Pod(name)
				trial.OK(t, "run", c.Run(long))
				if reserved := trial.Reserved(t, m.Node, "pods"); len(reserved) != 1 {
					t.Errorf("reserved while it runs: %v", reserved)
				}
				trial.OK(t, "stop", c.Stop(long))
				trial.OK(t, "rm", c.Remove(long))
			}
			m.WantNothingLeft(t)
			if guarded := len(m.Log(t)) > 0; guarded != p.Guarded() {
				t.Errorf("the guard was asked: %v", guarded)
			}
		})
	}
}

// Case 19: the DEL of one network fails; the other network's DEL still runs, and
// podman never asks for the first one again (ocicni #86, multus #152).
func TestCase19OneNetworkFails(t *testing.T) {
	t.Parallel()
	m, _ := newMachine(t, trial.IPAM(), trial.Network{Name: "pods"}, trial.Network{Name: "more"})
	c := m.Pod("pod")
	trial.OK(t, "run", c.Run(long))
	if leases := m.Leases(t); len(leases) != 2 {
		t.Fatalf("addresses of two networks: %v", leases)
	}
	// Whichever network comes first fails in each of its attempts.
	broken := `exit 1 "the pool server is on fire" 100`
	m.SetScript(t, guardtest.Script{"DEL": []string{broken, "free"}})
	c.Stop(long)
	dels := m.Calls(t, "DEL")
	if len(dels) < 2 || dels[len(dels)-1].IfName == dels[0].IfName {
		t.Errorf("%d DELs, want one of each network", len(dels))
	}
	if leases := m.Leases(t); len(leases) != 1 {
		t.Errorf("addresses after one DEL failed: %v", leases)
	}
	m.SetScript(t, nil)
	trial.OK(t, "rm", c.Remove(long))
	time.Sleep(time.Second)
	other := m.Pod("other")
	for _, call := range []func(time.Duration) trial.Answer{other.Run, other.Stop, other.Remove} {
		trial.OK(t, "another container", call(long))
	}
	m.WantNothingLeft(t)
}
