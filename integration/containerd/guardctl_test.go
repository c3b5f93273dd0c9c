//go:build integration || results

package containerd_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ipam-guard/ipam-guard/integration/internal/trial"
	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// guardctl is the administrator's tool, on a machine with a containerd that
// nobody has guarded yet.
type guardctl struct {
	*trial.Machine
	daemon *daemon
	tool   string
	conf   string // the one file of the conf folder
	bytes  string // what was in it
}

func newGuardctl(t *testing.T, r release) *guardctl {
	t.Helper()
	m, d := newMachineWith(t, r, trial.None(), trial.Network{Version: r.cniVersion, Name: "pods", Delegate: trial.RealHostLocal})
	if err := os.Remove(m.Guard()); err != nil {
		t.Fatal(err)
	}
	c := &guardctl{Machine: m, daemon: d, conf: filepath.Join(m.ConfDir, "pods.conflist")}
	c.tool = guardtest.Build(t, "github.com/ipam-guard/ipam-guard/cmd/ipam-guardctl")
	c.bytes = c.read(t, c.conf)
	return c
}

func (c *guardctl) read(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// run runs the tool, and wants one of these exit statuses.
func (c *guardctl) run(t testing.TB, args []string, want ...int) (out string) {
	t.Helper()
	cmd := exec.Command(c.tool, args...)
	cmd.Dir = c.Dir
	out, err := c.Jail.Run(cmd)
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	if have := cmd.ProcessState.ExitCode(); !slices.Contains(want, have) {
		t.Errorf("ipam-guardctl %s: exit status %d, want %v\n%s", strings.Join(args, " "), have, want, out)
	}
	return out
}

// install and uninstall are those commands, for this machine.
func (c *guardctl) install(t testing.TB) []string {
	return []string{"install", "--binary", guardtest.Build(t, guardtest.Guard), "--cni-path", c.Bin, c.ConfDir}
}

func (c *guardctl) uninstall() []string {
	return []string{"uninstall", "--cni-path", c.Bin, c.ConfDir}
}

// Case 54: the tool changes the folder that a living containerd watches, again
// and again, while pods come and go. No call fails, no pod loses its address, and
// there is no moment without a network.
func TestGuardctlUnderPods(t *testing.T) {
	for _, r := range releases() {
		t.Run(r.section, func(t *testing.T) {
			t.Parallel()
			c := newGuardctl(t, r)
			var came atomic.Int64
			over := make(chan struct{})
			stays := c.start(t, "stays")
			var busy sync.WaitGroup
			watching := c.watch(t)
			for i := range 2 {
				busy.Go(func() { c.comeAndGo(t, fmt.Sprintf("loop-%d", i), over, &came) })
			}
			busy.Go(func() { c.poll(t, over) })

			rounds := 0
			for ; rounds < 2 || came.Load() < 4; rounds++ {
				c.round(t)
				stays.keeps(t, c)
			}
			close(over)
			busy.Wait()
			t.Logf("%d rounds, %d pods came and went", rounds, came.Load())
			c.run(t, c.install(t), 0)
			c.run(t, c.uninstall(), 0, 5)
			stays.end(t, c)
			c.finish(t, c.uninstall())
			if events := watching(); events < rounds {
				t.Errorf("%d events in the conf folder were seen in %d rounds", events, rounds)
			}
			c.unguarded(t)
			c.neverWithout(t)
		})
	}
}

// finish gives uninstall again when its pods are gone. Of those whose DEL went
// past the guard, since the configuration had been unwrapped before it, it
// wants to have seen for ten minutes that they are gone.
func (c *guardctl) finish(t *testing.T, uninstall []string) {
	t.Helper()
	c.run(t, uninstall, 0, 5)
	if c.Records(t) == 0 {
		return
	}
	if _, can := c.TenMinutesOn(t); can {
		c.run(t, uninstall, 0)
	}
}

// round is all that an administrator may do to a conf folder.
func (c *guardctl) round(t *testing.T) {
	t.Helper()
	unwrap := []string{"unwrap", c.ConfDir}
	wrap := []string{"wrap", "--cni-path", c.Bin, c.ConfDir}
	for _, args := range [][]string{
		c.install(t), wrap, unwrap, append(slices.Clone(wrap), "--settings", `{"timeout": {"del": "25s"}}`), unwrap, wrap,
	} {
		c.run(t, args, 0)
	}
	c.run(t, c.uninstall(), 0, 5)
	if have := c.read(t, c.conf); have != c.bytes {
		t.Errorf("after uninstall:\n%s\nwant\n%s", have, c.bytes)
	}
}

// comeAndGo starts, stops and removes one pod after the other.
func (c *guardctl) comeAndGo(t *testing.T, name string, over <-chan struct{}, came *atomic.Int64) {
	for i := 0; ; i++ {
		select {
		case <-over:
			return
		default:
		}
		p := c.start(t, fmt.Sprintf("%s-%d", name, i))
		p.keeps(t, c)
		p.end(t, c)
		came.Add(1)
	}
}

// lodger is a pod that has an address.
type lodger struct {
	*pod
	address string
}

func (c *guardctl) start(t *testing.T, name string) *lodger {
	p := &pod{daemon: c.daemon, name: name}
	trial.OK(t, "Run of "+name, p.Run(long))
	held := trial.ReservedFor(t, c.Node, "pods", p.id)
	if len(held) != 1 {
		t.Errorf("%s runs and has %v", name, held)
		return &lodger{p, ""}
	}
	return &lodger{p, held[0]}
}

// keeps looks whether the pod still has its address, and nobody else.
func (p *lodger) keeps(t *testing.T, c *guardctl) {
	t.Helper()
	if held := trial.ReservedFor(t, c.Node, "pods", p.id); !slices.Equal(held, []string{p.address}) {
		t.Errorf("%s runs, had %s and has %v", p.name, p.address, held)
	}
}

func (p *lodger) end(t *testing.T, c *guardctl) {
	t.Helper()
	trial.OK(t, "Stop of "+p.name, p.Stop(long))
	trial.OK(t, "Remove of "+p.name, p.Remove(long))
	if held := trial.ReservedFor(t, c.Node, "pods", p.id); len(held) != 0 {
		t.Errorf("%s is gone and has %v", p.name, held)
	}
}
