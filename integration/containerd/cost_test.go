//go:build results

package containerd_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipam-guard/ipam-guard/integration/internal/trial"
	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// pods is how many come and go for each of the figures.
const pods = 40

// TestCost puts side by side what the guard adds to a pod's life on containerd,
// and what it adds to the calls that containerd makes for it.
func TestCost(t *testing.T) {
	r := latest()
	bare, guarded := withHostLocal(t, r, trial.None()), withHostLocal(t, r, trial.IPAM())
	lives := map[*trial.Machine][]time.Duration{}
	for i := range pods + 2 {
		for _, m := range []*trial.Machine{bare, guarded} {
			took := life(t, m, fmt.Sprintf("pod-%d", i))
			if i >= 2 { // by then all is in memory that will be
				lives[m] = append(lives[m], took)
			}
		}
	}
	adds, dels := calls(t, guarded)
	add, del := own(t)
	slower := median(lives[guarded]) - median(lives[bare])
	share := time.Duration(float64(add)*adds + float64(del)*dels)
	var text strings.Builder
	fmt.Fprintf(&text, "## What it costs a pod\n\n%s\n", trial.Where(r.versions(t)...))
	fmt.Fprintf(&text, "%d pods each, one by one, in turn with the guard (ipam) and without; bridge and host-local; medians.\n\n", pods)
	fmt.Fprintln(&text, "| | without | with the guard | more |\n|---|---:|---:|---:|")
	fmt.Fprintf(&text, "| a pod's Run, Stop and Remove through containerd | %s | %s | %s |\n", ms(median(lives[bare])), ms(median(lives[guarded])), ms(slower))
	fmt.Fprintf(&text, "| host-local called alone: ADD | | | %s |\n| host-local called alone: DEL | | | %s |\n", ms(add), ms(del))
	fmt.Fprintf(&text, "| the guard's own share of a pod: %.1f ADD, %.1f DEL | | | %s |\n", adds, dels, ms(share))
	fmt.Fprintf(&text, "\nHalf of the pods without the guard took between %s and %s.\n", ms(quarter(lives[bare], 1)), ms(quarter(lives[bare], 3)))
	trial.Section(t, "cost", text.String())
}

func withHostLocal(t *testing.T, r release, p trial.Position) *trial.Machine {
	m, _ := newMachineWith(t, r, p, trial.Network{Version: r.cniVersion, Name: "pods", Delegate: trial.RealHostLocal})
	return m
}

func life(t *testing.T, m *trial.Machine, name string) (took time.Duration) {
	t.Helper()
	p := m.Pod(name)
	for _, call := range []func(time.Duration) trial.Answer{p.Run, p.Stop, p.Remove} {
		a := call(long)
		trial.OK(t, name, a)
		took += a.Took
	}
	return took
}

// calls is how many ADDs and DELs containerd makes for a pod.
func calls(t *testing.T, m *trial.Machine) (adds, dels float64) {
	t.Helper()
	for _, line := range m.Log(t) {
		switch line["verb"] {
		case "ADD":
			adds++
		case "DEL":
			dels++
		}
	}
	return adds / (pods + 2), dels / (pods + 2)
}

// own is what the guard adds to an ADD and a DEL of host-local.
func own(t *testing.T) (add, del time.Duration) {
	t.Helper()
	n := guardtest.New(t)
	n.Install(t, guardtest.Build(t, guardtest.HostLocal), "bin", "host-local")
	delegate := trial.RealHostLocal(n)
	delegate["dir"] = nil
	took := map[string][]time.Duration{}
	for i := range 3 * pods {
		for _, position := range []string{guardtest.Bare, guardtest.IPAM} {
			o := guardtest.Opts{Conf: guardtest.Conf{Position: position, Delegate: delegate}}
			if position == guardtest.Bare {
				o.Binary = filepath.Join(n.Bin, "host-local")
			}
			for _, verb := range []string{"ADD", "DEL"} {
				took[verb+position] = append(took[verb+position], n.Run(t, verb, fmt.Sprintf("c%d", i), o).OK(t).Took)
			}
		}
	}
	return median(took["ADD"]) - median(took["ADD"+guardtest.Bare]), median(took["DEL"]) - median(took["DEL"+guardtest.Bare])
}

func median(all []time.Duration) time.Duration { return quarter(all, 2) }

// quarter is the value that so many quarters are below.
func quarter(all []time.Duration, quarters int) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)*quarters/4]
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond)) }
