//go:build results

package containerd_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ipam-guard/ipam-guard/integration/internal/trial"
	"github.com/ipam-guard/ipam-guard/internal/guardtest"
	"github.com/ipam-guard/ipam-guard/pkg/journal"
)

// reservedFor are the addresses that host-local holds for a container.
func reservedFor(t testing.TB, m *trial.Machine, container string) (addresses []string) {
	t.Helper()
	for _, address := range trial.Reserved(t, m.Node, "pods") {
		text, _ := os.ReadFile(filepath.Join(m.Dir, "networks", "pods", address)) // gone meanwhile: not this one's
		if strings.HasPrefix(string(text), container+"\r\n") {
			addresses = append(addresses, address)
		}
	}
	return addresses
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
	j := &journal.Journal{Dir: m.StateDir, Node: journal.Here()}
	e := j.Try(journal.Key{Network: "pods", Container: container, IfName: "eth0", Delegate: "host-local"})
	if e == nil {
		t.Fatal("no record of " + container)
	}
	defer e.Close()
	if err := e.Update(func(r *journal.Record) { r.GoneSince = 1 }); err != nil {
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

// gc and audit --release, one after the other, while pods come and go: what is
// leaked goes, and no pod loses its address, nor does a container of a runtime
// without CRI. Each takes the minute between its looks.
func TestReleaseRaced(t *testing.T) {
	if up := journal.Uptime(); up < 11*60*1000 {
		t.Skipf("this machine is up for %d s: nothing can be gone for ten minutes", up/1000)
	}
	t.Parallel()
	r := latest()
	m, _ := newMachineWith(t, r, trial.IPAM(), trial.Network{Version: r.cniVersion, Name: "pods", Delegate: trial.RealHostLocal})
	hold(t, m, "10.99.15.200", "vanished")
	hold(t, m, "10.99.15.201", "podmans")
	if _, err := m.Jail.Start(exec.Command("unshare", "-n", "sh", "-c", "ip addr add 10.99.15.201/32 dev lo; exec sleep infinity")); err != nil {
		t.Fatal(err)
	}
	lose(t, m, "lost")

	over := make(chan struct{})
	living := make([][]*pod, 2)
	var churning sync.WaitGroup
	for i := range living {
		churning.Go(func() { living[i] = churn(t, m, fmt.Sprintf("race-%d", i), over) })
	}
	where := []string{"--conf-dir", m.ConfDir, "--cri", socket, "--state-dir", m.StateDir}
	gc, err := ctl(t, m, append([]string{"gc"}, where...)...)
	if err != nil || !strings.Contains(gc, "lost/eth0@pods@host-local  released") {
		t.Errorf("gc: %v\n%s", err, gc)
	}
	where = append(where, "--data-dir", filepath.Join(m.Dir, "networks"), "--cni-path", m.Bin, "--release", "--yes")
	audit, err := ctl(t, m, append([]string{"audit"}, where...)...)
	if err != nil || strings.Count(audit, "status") != 1 || !strings.Contains(audit, "released") {
		t.Errorf("audit: %v\n%s", err, audit)
	}
	close(over)
	churning.Wait()

	for _, p := range append(living[0], living[1]...) {
		if have := reservedFor(t, m, p.id); len(have) != 1 {
			t.Errorf("%s lives and has %v", p.name, have)
		}
		end(t, p)
	}
	if have := trial.Reserved(t, m.Node, "pods"); len(have) != 1 || have[0] != "10.99.15.201" {
		t.Errorf("reserved in the end: %v", have)
	}
	m.NoOverlap(t)
}

// churn starts pods until it is over. Each third lives on; the others are looked
// at and go.
func churn(t *testing.T, m *trial.Machine, name string, over <-chan struct{}) (living []*pod) {
	started := 0
	for ; ; started++ {
		select {
		case <-over:
			t.Logf("%s: %d pods came, %d live", name, started, len(living))
			return living
		default:
		}
		p := m.Pod(fmt.Sprintf("%s-%d", name, started)).(*pod)
		trial.OK(t, "Run", p.Run(long))
		if started%3 == 0 && len(living) < 10 {
			living = append(living, p)
			continue
		}
		if have := reservedFor(t, m, p.id); len(have) != 1 {
			t.Errorf("%s lives and has %v", p.name, have)
		}
		trial.OK(t, "Stop", p.Stop(long))
		trial.OK(t, "Remove", p.Remove(long))
	}
}
