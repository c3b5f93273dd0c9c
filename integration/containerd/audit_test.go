//go:build results

package containerd_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ipam-guard/ipam-guard/integration/internal/podman"
	"github.com/ipam-guard/ipam-guard/integration/internal/trial"
	"github.com/ipam-guard/ipam-guard/internal/guardtest"
	"github.com/ipam-guard/ipam-guard/pkg/journal"
)

// network is one that podman's CNI library takes, too.
func network() trial.Network {
	return trial.Network{Version: "1.0.0", Name: "pods", Delegate: trial.RealHostLocal}
}

// hold makes a reservation as host-local did an hour ago.
func hold(t *testing.T, m *trial.Machine, address, container string) {
	t.Helper()
	path := filepath.Join(m.Dir, "networks", "pods", address)
	old := time.Now().Add(-time.Hour)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(container+"\r\neth0"), 0o600)
	}
	if err == nil {
		err = os.Chtimes(path, old, old)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// lose attaches a container of which no runtime knows, whose netns is gone for
// long.
func lose(t *testing.T, m *trial.Machine, container string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(m.ConfDir, "pods.conflist"))
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Name, CNIVersion string
		Plugins          []guardtest.Object
	}
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	list.Plugins[0]["name"], list.Plugins[0]["cniVersion"] = list.Name, list.CNIVersion
	stdin, err := json.Marshal(list.Plugins[0])
	if err != nil {
		t.Fatal(err)
	}
	netns := filepath.Join(m.Dir, "lost")
	if err := os.WriteFile(netns, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	add := exec.Command(m.Guard())
	add.Dir, add.Stdin = m.Dir, strings.NewReader(string(stdin))
	add.Env = []string{"CNI_COMMAND=ADD", "CNI_CONTAINERID=" + container, "CNI_IFNAME=eth0", "CNI_NETNS=" + netns, "CNI_PATH=" + m.Bin}
	if _, err := m.Jail.Run(add); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(netns); err != nil {
		t.Fatal(err)
	}
	longGoneForUs(t, m, container)
}

// longGone lets a container's netns be gone for ten minutes, by its record.
func longGone(t *testing.T, m *trial.Machine, container string) (queue, mark string) {
	t.Helper()
	j := &journal.Journal{Dir: m.StateDir, Node: journal.Here()}
	e := j.Try(journal.Key{Network: "pods", Container: container, IfName: "eth0", Delegate: "host-local"})
	if e == nil {
		t.Fatal("no record of " + container)
	}
	defer e.Close()
	if err := e.Update(func(r *journal.Record) { r.GoneSince = 1 }); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(m.StateDir, "queue", e.Delegate), e.Mark
}

// longGoneForUs is longGone, and hides the record from the calls for other pods,
// which would release it, too.
func longGoneForUs(t *testing.T, m *trial.Machine, container string) {
	t.Helper()
	queue, mark := longGone(t, m, container)
	if err := os.Remove(filepath.Join(queue, mark)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
}

// ctl runs the administrator's tool on the machine.
func ctl(t *testing.T, m *trial.Machine, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(guardtest.Build(t, "github.com/ipam-guard/ipam-guard/cmd/ipam-guardctl"), args...)
	cmd.Dir = m.Dir
	return m.Jail.Run(cmd)
}

// gc and audit --release, one after the other, while pods of containerd and
// containers of podman come and go, on one network with one guard: what is leaked
// goes, and nobody loses an address that he has. Each takes the minute between its
// looks.
func TestReleaseRaced(t *testing.T) {
	if up := journal.Uptime(); up < 11*60*1000 {
		t.Skipf("this machine is up for %d s: nothing can be gone for ten minutes", up/1000)
	}
	t.Parallel()
	m, d := newMachineWith(t, latest(), trial.IPAM(), network())
	pm := podman.New(t, m.Jail, m.Node, m.Bin)
	hold(t, m, "10.99.15.200", "vanished")
	lose(t, m, "lost")
	p := plantAll(t, m, pm)

	over := make(chan struct{})
	var living [3][]guest
	var churning sync.WaitGroup
	for i, start := range []func(*testing.T, string) guest{ofPodman(pm), ofContainerd(d), ofContainerd(d)} {
		churning.Go(func() { living[i] = churn(t, m, fmt.Sprintf("race-%d", i), start, over) })
	}
	where := []string{"--conf-dir", m.ConfDir, "--cri", socket, "--state-dir", m.StateDir}
	gc, err := ctl(t, m, append([]string{"gc"}, where...)...)
	lines(t, "gc", gc, err, map[string]string{"lost": "released", p.leaked.id: "released", p.kept.id: "waits", p.again.id: "waits", p.recent.id: "waits"})
	p.want(t, m, "after gc", p.recent)

	longGoneForUs(t, m, p.recent.id)
	where = append(where, "--data-dir", filepath.Join(m.Dir, "networks"), "--cni-path", m.Bin, "--release", "--yes")
	audit, err := ctl(t, m, append([]string{"audit"}, where...)...)
	if err != nil || strings.Count(audit, "status") != 2 || strings.Count(audit, "released") != 2 {
		t.Errorf("audit: %v\n%s", err, audit)
	}
	close(over)
	churning.Wait()
	p.want(t, m, "after audit")
	left(t, m, p, slices.Concat(living[0], living[1], living[2]))
	m.NoOverlap(t)
}

// lines looks at what gc says: of these containers, and of no other.
func lines(t *testing.T, what, said string, err error, want map[string]string) {
	t.Helper()
	have := map[string]string{}
	for line := range strings.Lines(said) {
		container, rest, _ := strings.Cut(line, "/eth0@pods@host-local")
		if f := strings.Fields(rest); len(f) > 0 {
			have[container] = f[0]
		}
	}
	if err != nil || !maps.Equal(have, want) {
		t.Errorf("%s: %v\n%s\nwant %v", what, err, said, want)
	}
}

// left looks at what is held when all is over: by those who live, and by nobody
// else. Then they go.
func left(t *testing.T, m *trial.Machine, p *planted, living []guest) {
	t.Helper()
	used := inUse(t, m)
	var want []string
	for _, g := range living {
		have := trial.ReservedFor(t, m.Node, "pods", g.id)
		if len(have) != 1 || !used[have[0]] {
			t.Errorf("%s lives and has %v", g.name, have)
		}
		want = append(want, have...)
	}
	for _, s := range p.stay() {
		want = append(want, s.address)
	}
	have := trial.Reserved(t, m.Node, "pods")
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) {
		t.Errorf("reserved in the end: %v, want %v", have, want)
	}
	for _, g := range living {
		end(t, g)
		if have := trial.ReservedFor(t, m.Node, "pods", g.id); len(have) > 0 {
			t.Errorf("%s is gone and has %v", g.name, have)
		}
	}
}

// guest is a pod of containerd, or a container of podman.
type guest struct {
	trial.Pod
	name, id string
}

func ofPodman(pm *podman.Podman) func(*testing.T, string) guest {
	return func(t *testing.T, name string) guest {
		c := &podman.Container{Podman: pm, Name: name, Networks: []string{"pods"}}
		trial.OK(t, "podman run", c.Run(long))
		id, a := c.Inspect("{{.ID}}")
		trial.OK(t, "podman inspect", a)
		return guest{c, name, id}
	}
}

func ofContainerd(d *daemon) func(*testing.T, string) guest {
	return func(t *testing.T, name string) guest {
		p := &pod{daemon: d, name: name}
		trial.OK(t, "Run", p.Run(long))
		return guest{p, name, p.id}
	}
}

// churn starts guests until it is over. Each third lives on; the others are looked
// at and go.
func churn(t *testing.T, m *trial.Machine, name string, start func(*testing.T, string) guest, over <-chan struct{}) (living []guest) {
	started := 0
	for ; ; started++ {
		select {
		case <-over:
			t.Logf("%s: %d came, %d live", name, started, len(living))
			return living
		default:
		}
		g := start(t, fmt.Sprintf("%s-%d", name, started))
		if started%3 == 0 && len(living) < 10 {
			living = append(living, g)
			continue
		}
		if have := trial.ReservedFor(t, m.Node, "pods", g.id); len(have) != 1 {
			t.Errorf("%s lives and has %v", g.name, have)
		}
		trial.OK(t, "Stop", g.Stop(long))
		trial.OK(t, "Remove", g.Remove(long))
	}
}
