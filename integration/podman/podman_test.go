//go:build integration || results

package podman_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/ipam-guard/ipam-guard/integration/internal/jail"
	fixture "github.com/ipam-guard/ipam-guard/integration/internal/podman"
	"github.com/ipam-guard/ipam-guard/integration/internal/trial"
	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// podman is one in a jail.
type podman struct{ *fixture.Podman }

func (p *podman) call(patience time.Duration, args ...string) (string, trial.Answer) {
	return p.Call(patience, args...)
}

// container is a trial.Pod.
type container = fixture.Container

func newMachine(t testing.TB, p trial.Position, nets ...trial.Network) (*trial.Machine, *podman) {
	t.Helper()
	n := guardtest.New(t)
	dirs := p.Plugins(t, n, nets[0].Settings)
	var names []string
	for _, net := range nets {
		net.Version = "1.0.0"
		names = append(names, net.Name)
		trial.WriteConf(t, filepath.Join(n.Dir, "net.d"), net.Name+".conflist", p.Conflist(n, net))
	}
	pm := &podman{fixture.New(t, jail.New(t), n, dirs...)}
	return &trial.Machine{
		Node: n, Jail: pm.Jail, Position: p, ConfDir: pm.ConfDir,
		Pod: func(name string) trial.Pod {
			return &container{Podman: pm.Podman, Name: name, Networks: names}
		},
	}, pm
}

// versions are those of its programs.
func versions(t testing.TB) []string {
	t.Helper()
	m, pm := newMachine(t, trial.None(), trial.Network{Name: "pods"})
	_ = m
	out, a := pm.call(time.Minute, "version", "--format", "podman {{.Client.Version}}")
	if a.Err != nil {
		t.Fatal(a.Err)
	}
	return []string{out}
}
