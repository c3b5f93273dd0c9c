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

// killed is what is left where podman was killed while ADD worked: at once, and
// after a reboot, a removal and another container.
func killed(t *testing.T, p trial.Position) (atOnce, after trial.Left, records int) {
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
	atOnce = m.Left(t)
	m.SetScript(t, nil)
	pm.Reboot(t, bootID)
	trial.OK(t, "rm", m.Pod("pod").Remove(long))
	other := m.Pod("other")
	for _, call := range []func(time.Duration) trial.Answer{other.Run, other.Stop, other.Remove} {
		trial.OK(t, "another container", call(long))
	}
	m.NoOverlap(t)
	return atOnce, m.Left(t), m.Records(t)
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
			atOnce, after, records := killed(t, p)
			if atOnce.Addresses != addresses || after != (trial.Left{Addresses: addresses}) || records != addresses {
				t.Errorf("left at once: %s, at last: %s, and %d records; want %d addresses, each with a record", atOnce, after, records, addresses)
			}
		})
	}
}

func killedTable(t *testing.T) string {
	var text strings.Builder
	fmt.Fprintln(&text, "podman killed while ADD works, and never asked for a release: addresses, processes and namespaces. A record of an\nattachment is released ten minutes after its namespace is found gone.")
	fmt.Fprintln(&text, "\n| guard | left at once | after a reboot, `podman rm` and another container | records of that |\n|---|---|---|---:|")
	for _, p := range trial.Positions() {
		atOnce, after, records := killed(t, p)
		fmt.Fprintf(&text, "| %s | %s | %s | %d |\n", p.Name, atOnce, after, records)
		if p.Guarded() && after.Addresses != records {
			t.Errorf("%s: an address without a record", p.Name)
		}
	}
	return text.String()
}
