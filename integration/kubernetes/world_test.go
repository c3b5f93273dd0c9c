//go:build kubernetes

package kubernetes_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ipam-guard/ipam-guard/integration/kubernetes/internal/cluster"
	"github.com/ipam-guard/ipam-guard/integration/kubernetes/internal/faultproxy"
	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// Where the guard is.
const (
	bare   = "bare"
	ipam   = "ipam"
	shadow = "shadow"
)

// A world is one node with its own namespace for whereabouts' pools and lease,
// and its own way to the API: worlds don't meet.
type world struct {
	*guardtest.Node

	position   string
	conf       guardtest.Conf
	path       string // CNI_PATH
	binary     string
	namespace  string
	kubeconfig string
	proxy      *faultproxy.Proxy
}

// newWorld makes a world. ranges are whereabouts', guard is laid over the
// guard's settings.
func newWorld(t testing.TB, position string, ranges []string, guard guardtest.Object) *world {
	t.Helper()
	w := &world{Node: guardtest.New(t), position: position, namespace: "w-" + fmt.Sprintf("%016x", rand.Uint64())}
	host := fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(250), rand.IntN(256), 1+rand.IntN(250))
	api, err := stage.cluster.API, error(nil)
	if w.proxy, err = faultproxy.New(host, faultproxy.Backend{URL: api.URL, Client: api.Client, Cert: api.Cert, Key: api.Key}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.proxy.Close)
	if err := stage.cluster.CreateNamespace(w.namespace); err != nil {
		t.Fatal(err)
	}
	w.kubeconfig = filepath.Join(w.Dir, "kubeconfig")
	w.setToken(t, stage.cluster.PluginToken)
	w.install(t)
	w.configure(t, ranges, guard)
	return w
}

func (w *world) setToken(t testing.TB, token string) {
	t.Helper()
	if err := stage.cluster.WriteKubeconfig(w.kubeconfig, w.proxy.URL, w.namespace, token); err != nil {
		t.Fatal(err)
	}
}

// install puts whereabouts behind a script that writes down its runs, and those
// that began while another was running: that one holds the turn until it ends,
// whatever ends it.
func (w *world) install(t testing.TB) {
	t.Helper()
	real := w.Install(t, stage.whereabouts, "real", "whereabouts")
	w.InstallScript(t, "whereabouts", fmt.Sprintf(`
exec 9>>%[1]s/turn
flock -n 9 || echo "$CNI_COMMAND $CNI_CONTAINERID" >>%[1]s/overlaps
echo "$CNI_COMMAND $CNI_CONTAINERID" >>%[1]s/runs
exec %[2]s`, w.Dir, real))
	w.path = w.Bin
	switch w.position {
	case bare:
		w.binary = filepath.Join(w.Bin, "whereabouts")
	case ipam:
		w.binary = w.Guard()
	case shadow:
		w.binary = w.Install(t, guardtest.Build(t, guardtest.Guard), "shadow", "whereabouts")
		w.path = filepath.Dir(w.binary) + ":" + w.Bin
	}
}

// configure gives the shadow its settings by the node's file, and the guard in
// the netconf by the netconf.
func (w *world) configure(t testing.TB, ranges []string, guard guardtest.Object) {
	t.Helper()
	flat := filepath.Join(w.Dir, "flat.json")
	// A level at which it says nothing about a DEL, as long as nobody asks for more.
	if err := os.WriteFile(flat, []byte(`{"log_level": "error"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	delegate := guardtest.Object{
		"type": "whereabouts", "dir": nil, "configuration_path": flat,
		"kubernetes": guardtest.Object{"kubeconfig": w.kubeconfig},
	}
	named(delegate, ranges)
	w.conf = guardtest.Conf{Position: guardtest.Bare, Name: w.namespace, Delegate: delegate, Top: guardtest.Object{"type": "ipvlan"}}
	switch w.position {
	case ipam:
		w.conf.Position, w.conf.Guard = guardtest.IPAM, guard
	case shadow:
		if guard == nil {
			guard = guardtest.Object{}
		}
		w.SetNodeFile(t, guardtest.Object{"delegates": guardtest.Object{"whereabouts": guard}})
	}
}

// named writes ranges down in the ways that there are: one in `range`, two with
// the other in `ipRanges`, more in `ipRanges` alone.
func named(delegate guardtest.Object, ranges []string) {
	if len(ranges) <= 2 {
		delegate["range"], ranges = ranges[0], ranges[1:]
	}
	var list []guardtest.Object
	for _, r := range ranges {
		list = append(list, guardtest.Object{"range": r})
	}
	if list != nil {
		delegate["ipRanges"] = list
	}
}

// A pod is one attachment.
type pod struct{ name, container string }

func newPod(name string) pod { return pod{name, name + "-" + fmt.Sprintf("%08x", rand.Uint32())} }

// call runs a verb as the main plugin or the runtime would.
func (w *world) call(t testing.TB, verb string, p pod, change func(*guardtest.Opts)) guardtest.Result {
	t.Helper()
	o := guardtest.Opts{
		Conf: w.conf, Binary: w.binary, Path: w.path,
		Args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + p.name + ";K8S_POD_INFRA_CONTAINER_ID=" + p.container,
	}
	if change != nil {
		change(&o)
	}
	return w.Run(t, verb, p.container, o)
}

func (w *world) add(t testing.TB, p pod) []string { t.Helper(); return w.call(t, "ADD", p, nil).IPs(t) }

// del is a DEL; the runtime removes the netns when it was told that all is well.
func (w *world) del(t testing.TB, p pod, change func(*guardtest.Opts)) guardtest.Result {
	t.Helper()
	r := w.call(t, "DEL", p, change)
	if r.RC == 0 {
		w.SetNetns(t, p.container, "")
	}
	return r
}

// left is what is still taken in this world.
type left struct{ addresses, reservations int }

func (w *world) left(t testing.TB) left {
	t.Helper()
	return left{len(w.allocations(t)), len(w.reservations(t))}
}

func (w *world) allocations(t testing.TB) []cluster.Allocation {
	t.Helper()
	a, err := stage.cluster.Allocations(w.namespace)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (w *world) reservations(t testing.TB) []cluster.Reservation {
	t.Helper()
	r, err := stage.cluster.Reservations(w.namespace)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// pending is how many records are left.
func (w *world) pending(t testing.TB) int {
	t.Helper()
	n := 0
	err := filepath.WalkDir(filepath.Join(w.StateDir, "records"), func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			n++
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return n
}

// runs of whereabouts so far, by verb.
func (w *world) runs(t testing.TB, verb string) int {
	t.Helper()
	return len(regexp.MustCompile("(?m)^"+verb+" ").FindAllString(w.read(t, "runs"), -1))
}

// overlaps are the runs that began while another was running.
func (w *world) overlaps(t testing.TB) []string {
	t.Helper()
	return strings.FieldsFunc(w.read(t, "overlaps"), func(r rune) bool { return r == '\n' })
}

func (w *world) read(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(w.Dir, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return string(text)
}

// others lets as many pods come and go, a second apart.
func (w *world) others(t testing.TB, count int) {
	t.Helper()
	for i := range count {
		time.Sleep(time.Second) // their pace is the experiment
		p := newPod(fmt.Sprintf("other-%d", i))
		w.add(t, p)
		w.del(t, p, nil).OK(t)
	}
}

// requests that the API's proxy saw while f ran.
func (w *world) requests(f func()) int {
	before, _, _ := w.proxy.Counts()
	f()
	after, _, _ := w.proxy.Counts()
	return after - before
}
