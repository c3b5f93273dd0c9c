//go:build kubernetes

package audit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ipam-guard/ipam-guard/integration/kubernetes/internal/cluster"
	"github.com/ipam-guard/ipam-guard/integration/kubernetes/internal/parts"
	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

const ctl = "github.com/ipam-guard/ipam-guard/cmd/ipam-guardctl"

func TestMain(m *testing.M) { guardtest.Main(m) }

// machine is a node whose pods get addresses from whereabouts.
type machine struct {
	*guardtest.Node
	cluster *cluster.Cluster
	conf    guardtest.Conf
	args    []string // of an audit
}

const namespace = "w-audit"

func newMachine(t *testing.T) *machine {
	t.Helper()
	cache, err := parts.Default(os.Stdout)
	if err != nil {
		t.Fatal(err)
	}
	p, err := cache.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c, err := cluster.Start(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	m := &machine{Node: guardtest.New(t), cluster: c}
	kubeconfig := filepath.Join(m.Dir, "kubeconfig")
	err = errors.Join(c.CreateNamespace(namespace), c.WriteKubeconfig(kubeconfig, c.URL, namespace, c.PluginToken))
	if err != nil {
		t.Fatal(err)
	}
	m.Guard()
	m.Install(t, p.Whereabouts, "bin", "whereabouts")
	flat := m.write(t, "flat.json", `{"log_level": "error"}`)
	m.conf = guardtest.Conf{Name: "storage", Top: guardtest.Object{"type": "ipvlan"}, Delegate: guardtest.Object{
		"type": "whereabouts", "dir": nil, "range": "10.70.0.0/24", "configuration_path": flat,
		"kubernetes": guardtest.Object{"kubeconfig": kubeconfig},
	}}
	m.write(t, "net.d/20-storage.conf", string(m.Netconf(m.conf)))
	m.args = []string{
		"audit", "--output", "json", "--conf-dir", filepath.Join(m.Dir, "net.d"), "--data-dir", filepath.Join(m.Dir, "none"),
		"--cni-path", m.Bin, "--state-dir", m.StateDir, "--containers", m.write(t, "containers", "# those of pods that run here\nrunning\n"),
	}
	return m
}

func (m *machine) write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(m.Dir, name)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// add attaches a pod, behind the guard or as on a node without one.
func (m *machine) add(t *testing.T, pod string, guarded bool) string {
	t.Helper()
	o := guardtest.Opts{Conf: m.conf, Args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + pod + ";K8S_POD_INFRA_CONTAINER_ID=" + pod}
	if !guarded {
		o.Conf.Position, o.Binary = guardtest.Bare, filepath.Join(m.Bin, "whereabouts")
	}
	return m.Run(t, "ADD", pod, o).IPs(t)[0]
}

// create makes a pod's object, as it is when kubelet starts the pod.
func (m *machine) create(t *testing.T, name string) {
	t.Helper()
	err := m.cluster.Create("/api/v1/namespaces/default/pods", "application/json", fmt.Appendf(nil,
		`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": %q}, "spec": {"automountServiceAccountToken": false,
		"containers": [{"name": "c", "image": "pause"}]}}`, name))
	if err != nil {
		t.Fatal(err)
	}
}

// ready says of the node cut-off whether it is.
func (m *machine) ready(t *testing.T, is string) {
	t.Helper()
	status, answer, err := m.cluster.Do("PATCH", "/api/v1/nodes/cut-off/status", "application/merge-patch+json",
		fmt.Appendf(nil, `{"status": {"conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": %q}]}}`, is))
	if err != nil || status != 200 {
		t.Fatalf("%d %s %v", status, answer, err)
	}
}

// audit is what it found, in short.
func (m *machine) audit(t *testing.T, want int, more ...string) []string {
	t.Helper()
	cmd := exec.Command(guardtest.Build(t, ctl), append(slices.Clone(m.args), more...)...)
	cmd.Dir = m.Dir
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, _ := cmd.Output() // the status says it
	var answer struct {
		Items []struct{ Kind, Address, Pod, Status, StatusWhy string }
	}
	if err := json.Unmarshal(out, &answer); err != nil || cmd.ProcessState.ExitCode() != want {
		t.Fatalf("%s, want %d; %v\n%s\n%s", cmd.ProcessState, want, err, out, complaints.String())
	}
	var short []string
	for _, f := range answer.Items {
		short = append(short, strings.TrimSpace(strings.Join([]string{f.Kind, f.Address, f.Pod, f.Status, f.StatusWhy}, " ")))
	}
	slices.Sort(short)
	return short
}

// What was planted in whereabouts' pools is found, and nothing else; what is
// leaked goes, after the minute between the looks.
func TestAudit(t *testing.T) {
	m := newMachine(t)
	m.create(t, "elsewhere")
	m.create(t, "guarded")
	m.create(t, "running")
	m.add(t, "elsewhere", false) // of a pod on another node
	m.add(t, "guarded", true)
	m.add(t, "running", false)
	if found := m.audit(t, 0); len(found) > 0 {
		t.Errorf("all is well: %q", found)
	}
	leaked := m.add(t, "leaked", false)
	err := m.cluster.Create("/apis/whereabouts.cni.cncf.io/v1alpha1/namespaces/"+namespace+"/overlappingrangeipreservations", "application/json",
		[]byte(`{"apiVersion": "whereabouts.cni.cncf.io/v1alpha1", "kind": "OverlappingRangeIPReservation",
			"metadata": {"name": "10.70.0.99"}, "spec": {"podref": "default/former"}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"leaked " + leaked + " default/leaked", "reservation 10.70.0.99 default/former"}
	if found := m.audit(t, 3); !slices.Equal(found, want) {
		t.Errorf("found %q, want %q", found, want)
	}
	// A pod that was force-deleted while its node was cut off runs on there.
	err = m.cluster.Create("/api/v1/nodes", "application/json", []byte(`{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "cut-off"}}`))
	if err != nil {
		t.Fatal(err)
	}
	m.ready(t, "Unknown")
	cutOff := []string{want[0] + " waits it lives after all: node cut-off is not ready: what runs there can't be known", want[1]}
	if found := m.audit(t, 3, "--release", "--yes"); !slices.Equal(found, cutOff) {
		t.Errorf("found %q, want %q", found, cutOff)
	}
	m.ready(t, "True")
	want[0] += " released"
	if found := m.audit(t, 3, "--release", "--yes"); !slices.Equal(found, want) {
		t.Errorf("found %q, want %q", found, want)
	}
	allocations, err := m.cluster.Allocations(namespace)
	if err != nil || len(allocations) != 3 || slices.ContainsFunc(allocations, func(a cluster.Allocation) bool { return a.Container == "leaked" }) {
		t.Errorf("allocations: %+v, %v", allocations, err)
	}
	if reservations, err := m.cluster.Reservations(namespace); err != nil || len(reservations) != 4 {
		t.Errorf("reservations: %+v, %v", reservations, err)
	}
	if found := m.audit(t, 3); !slices.Equal(found, want[1:]) {
		t.Errorf("found %q, want %q", found, want[1:])
	}
}

// Where the API can't be asked, that is said, and is no reason to take pools for
// empty.
func TestAuditWithoutAPI(t *testing.T) {
	m := newMachine(t)
	m.create(t, "guarded")
	m.add(t, "guarded", true)
	m.cluster.Stop()
	cmd := exec.Command(guardtest.Build(t, ctl), m.args...)
	cmd.Dir = m.Dir
	out, _ := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(string(out), "whereabouts' pools can't be read") || !strings.Contains(string(out), `"items": []`) {
		t.Errorf("%d\n%s", code, out)
	}
}
