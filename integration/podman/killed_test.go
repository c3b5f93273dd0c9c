//go:build integration || results

package podman_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipam-guard/ipam-guard/integration/internal/trial"
	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// afterKill is what is left where podman was killed while ADD worked.
type afterKill struct {
	atOnce  trial.Left
	after   trial.Left // a reboot, a removal and another container
	records int        // then
	later   trial.Left // ten minutes on, after one more container
	can     bool       // it could be seen
}

func killed(t *testing.T, p trial.Position) (k afterKill) {
	t.Helper()
	m, pm := newMachine(t, p, trial.Network{Name: "pods"})
	m.SetScript(t, guardtest.Script{"ADD": "alloc; waitfile podman-is-gone"})
	run := make(chan trial.Answer)
	go func() { run <- m.Pod("pod").Run(long) }()
	m.AwaitCalls(t, "ADD", 1)
	for _, process := range pm.Processes(t) {
		if process.Name == "podman" {
			_ = unix.Kill(process.PID, unix.SIGKILL)
		}
	}
	if a := <-run; a.Err == nil {
		t.Error("podman was not killed")
	}
	m.Touch(t, "podman-is-gone")
	guardtest.Eventually(t, "the end of all plugins", func() bool { return len(pm.Processes(t)) == 0 })
	k.atOnce = m.Left(t)
	m.SetScript(t, nil)
	pm.Reboot(t, bootID)
	trial.OK(t, "rm", m.Pod("pod").Remove(long))
	comeAndGo(t, m, "other")
	k.after, k.records = m.Left(t), m.Records(t)
	var noted int
	if noted, k.can = m.TenMinutesOn(t); k.can {
		if noted != k.records {
			t.Errorf("%s: of %d records %d say that their namespace is gone", p.Name, k.records, noted)
		}
		comeAndGo(t, m, "another")
		k.later = m.Left(t)
	}
	m.NoOverlap(t)
	return k
}

func comeAndGo(t *testing.T, m *trial.Machine, name string) {
	t.Helper()
	c := m.Pod(name)
	for _, call := range []func(time.Duration) trial.Answer{c.Run, c.Stop, c.Remove} {
		trial.OK(t, name, call(long))
	}
}

// podman is killed while ADD works: nobody asks for a release, and its network
// namespace stays mounted. Where the guard is what podman started, it notices
// and rolls back. Where bridge stands in between, bridge takes the result, and
// an address in a namespace that is there is not the guard's to free: its record
// stays, until the namespace is gone for ten minutes.
func TestKilledWhileAddWorks(t *testing.T) {
	for p, addresses := range map[trial.Position]int{trial.IPAM(): 1, trial.Plugin(): 0} {
		t.Run(trial.ID(p.Name), func(t *testing.T) {
			t.Parallel()
			k := killed(t, p)
			if k.atOnce.Addresses != addresses || k.after != (trial.Left{Addresses: addresses}) || k.records != addresses {
				t.Errorf("left at once: %s, after a reboot: %s, and %d records; want %d addresses, each with a record", k.atOnce, k.after, k.records, addresses)
			}
			if k.later != (trial.Left{}) {
				t.Errorf("left ten minutes on: %s", k.later)
			}
		})
	}
}

func killedTable(t *testing.T) string {
	var text strings.Builder
	fmt.Fprintln(&text, "podman killed while ADD works, and never asked for a release: addresses, processes and namespaces. The ten minutes are\nthose for which a namespace has to be gone; the note of when it went is set back.")
	fmt.Fprintln(&text, "\n| guard | left at once | after a reboot, `podman rm` and another container | records of that | ten minutes on, after one more |\n|---|---|---|---:|---|")
	for _, p := range trial.Positions() {
		k := killed(t, p)
		later := "not seen: the machine is up for less"
		if k.can {
			later = k.later.String()
		}
		fmt.Fprintf(&text, "| %s | %s | %s | %d | %s |\n", p.Name, k.atOnce, k.after, k.records, later)
		if p.Guarded() && (k.after.Addresses != k.records || k.later != trial.Left{}) {
			t.Errorf("%s: an address without a record, or one that stays: %+v", p.Name, k)
		}
	}
	return text.String()
}
