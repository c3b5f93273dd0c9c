//go:build integration || results

package containerd_test

import (
	"path/filepath"
	"testing"

	"github.com/ipam-guard/ipam-guard/integration/internal/trial"
	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// kubelet asks until it is done; here it gives up at some point.
const asks = 4

// newMachine is a node with a containerd of its own, the guard in a position
// and a network with the fake delegate.
func newMachine(t testing.TB, r release, p trial.Position, settings guardtest.Object) (*trial.Machine, *daemon) {
	t.Helper()
	return newMachineWith(t, r, p, trial.Network{Version: r.cniVersion, Name: "pods", Settings: settings})
}

func newMachineWith(t testing.TB, r release, p trial.Position, nets ...trial.Network) (*trial.Machine, *daemon) {
	t.Helper()
	n := guardtest.New(t)
	dirs := p.Plugins(t, n, nets[0].Settings)
	conf := filepath.Join(n.Dir, "net.d")
	for _, net := range nets {
		trial.WriteConf(t, conf, net.Name+".conflist", p.Conflist(n, net))
	}
	d := newDaemon(t, r, n, dirs...)
	return &trial.Machine{
		Node: n, Jail: d.Jail, Position: p, Own: []string{"containerd"}, Asks: asks, ConfDir: conf,
		Pod: func(name string) trial.Pod { return &pod{daemon: d, name: name} },
		Restart: func(t testing.TB) {
			d.kill()
			d.start(t, n.Dir)
		},
	}, d
}
