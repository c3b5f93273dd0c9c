//go:build integration || results

package podman_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ipam-guard/ipam-guard/integration/internal/trial"
)

// occasion is what comes before a container is started once more under its id.
type occasion struct {
	name   string
	before func(t *testing.T, m *trial.Machine, pm *podman, c *container)
}

func occasions() []occasion {
	return []occasion{
		{"stopped with a DEL that fails once", func(t *testing.T, m *trial.Machine, _ *podman, c *container) {
			breakHostLocal(t, m)
			c.Stop(long)
			mendHostLocal(t, m)
		}},
		{"running at a reboot", func(t *testing.T, m *trial.Machine, pm *podman, _ *container) {
			pm.Reboot(t, bootID)
		}},
		{"stopped with a DEL that fails once, then a reboot", func(t *testing.T, m *trial.Machine, pm *podman, c *container) {
			breakHostLocal(t, m)
			c.Stop(long)
			mendHostLocal(t, m)
			pm.Reboot(t, bootID)
		}},
	}
}

const bootID = "0badb007-0000-4000-8000-000000000000"

// restarted is what came of it: the answer of podman start, the addresses that
// are reserved then, and what is left when the container is gone.
type restarted struct {
	start          trial.Answer
	reserved, left int
}

func (a occasion) try(t *testing.T, p trial.Position) restarted {
	m, pm := newMachine(t, p, trial.Network{Name: "pods", Delegate: trial.RealHostLocal})
	c, _ := m.Pod("pod").(*container)
	trial.OK(t, "run", c.Run(long))
	a.before(t, m, pm, c)
	var r restarted
	_, r.start = pm.call(long, "start", "pod")
	r.reserved = len(trial.Reserved(t, m.Node, "pods"))
	c.Stop(long)
	trial.OK(t, "rm", c.Remove(long))
	r.left = len(trial.Reserved(t, m.Node, "pods"))
	if p.Guarded() {
		m.WantNothingLeft(t)
	}
	return r
}

// Case 47: after a reboot podman starts the same container id again, and so it
// does after a stop whose DEL failed: host-local holds its address still and
// refuses another (plugins #697, nerdctl #665).
func TestCase47SameContainerAgain(t *testing.T) {
	for _, a := range occasions() {
		t.Run(trial.ID(a.name), func(t *testing.T) {
			t.Parallel()
			if r := a.try(t, trial.IPAM()); r.start.Err != nil || r.reserved != 1 || r.left != 0 {
				t.Errorf("start: %v; %d addresses while it runs, %d when it is gone", r.start.Err, r.reserved, r.left)
			}
		})
	}
}

func againTable(t *testing.T) string {
	var text strings.Builder
	fmt.Fprintln(&text, "`podman stop` answers OK whatever a DEL says, and nobody asks again.")
	fmt.Fprintln(&text)
	fmt.Fprintln(&text, "A container with the real host-local, its reservations on a disk, started again under its id:")
	fmt.Fprintln(&text, "\n| before | guard | podman start | addresses then | left when it is gone |\n|---|---|---|---:|---:|")
	for _, a := range occasions() {
		for _, p := range trial.Positions() {
			r := a.try(t, p)
			fmt.Fprintf(&text, "| %s | %s | %s | %d | %d |\n", a.name, p.Name, r.start, r.reserved, r.left)
			if p.Guarded() && (r.start.Err != nil || r.reserved != 1 || r.left != 0) {
				t.Errorf("%s, guard %s: %+v", a.name, p.Name, r)
			}
		}
	}
	return text.String()
}
