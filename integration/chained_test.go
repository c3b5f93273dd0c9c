//go:build integration

package integration_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
	"github.com/ipam-guard/ipam-guard/pkg/journal"
)

const tuning = "github.com/containernetworking/plugins/plugins/meta/tuning"

// chained is a node with a list of two plugins: bridge, with host-local, and
// after it one that gets the result and hands it on changed: tuning, under the
// name of portmap, as what a runtime has most often there.
type chained struct {
	*network
	version string
	list    *libcni.NetworkConfigList
	at      guards
}

// guards says where guards are.
type guards struct {
	name                      string
	ipam, main, after, shadow bool
	long                      bool // and bridge has a long name
}

func arrangements() []guards {
	return []guards{
		{name: "ipam", ipam: true},
		{name: "plugin", main: true},
		{name: "plugin around ipam", main: true, ipam: true},
		{name: "plugin with a long name", main: true, long: true},
		{name: "the chained plugin", after: true},
		{name: "both plugins", main: true, after: true},
		{name: "shadow", shadow: true},
		{name: "everywhere", ipam: true, main: true, after: true, shadow: true},
	}
}

func newChained(t *testing.T, version string, at guards) *chained {
	t.Helper()
	c := &chained{network: newNetwork(t), version: version}
	c.Install(t, guardtest.Build(t, tuning), "bin", "tuning")
	// It notes what comes in, a line for each call, and names another gateway.
	c.InstallScript(t, "portmap", `in=$(cat); printf '%s %s\n' "$CNI_COMMAND" "$in" >>`+c.seenFile()+`
out=$(printf '%s' "$in" | "`+c.Bin+`/tuning"); end=$?
[ -z "$out" ] || printf '%s\n' "$out" | sed 's/"10\.99\.0\.1"/"10.99.0.2"/'
exit $end`)
	c.use(t, at)
	t.Chdir(c.Dir) // where the guards look for the node's file
	return c
}

// use is what an administrator does who guards, or no longer guards, what is
// there already.
func (c *chained) use(t *testing.T, at guards) {
	t.Helper()
	ipam := object{"type": "host-local", "dataDir": c.dataDir(), "ranges": [][]object{{{"subnet": "10.99.0.0/20"}}}}
	bridge := object{"type": c.bridge(t, at), "bridge": "br0", "capabilities": object{"ips": true, "mac": true}, "ipam": c.wrap(at.ipam, ipam)}
	after := object{"type": "portmap", "mtu": 1280, "dataDir": c.tuningDir(), "capabilities": object{"portMappings": true}}
	c.setList(t, c.wrap(at.main, bridge), c.wrap(at.after, after))
	path := []string{c.Bin}
	if at.shadow {
		path = []string{filepath.Join(c.Dir, "shadow"), c.Bin}
		c.Install(t, c.Guard(), "shadow", "host-local")
	}
	c.cni = libcni.NewCNIConfigWithCacheDir(path, c.cacheDir(), &inside{&invoke.DefaultExec{RawExec: &invoke.RawExec{}}, c.netns})
	c.at = at
}

func (c *chained) setList(t *testing.T, plugins ...object) {
	t.Helper()
	list, err := libcni.ConfListFromBytes(mustJSON(t, object{"cniVersion": c.version, "name": "pods", "plugins": plugins}))
	if err != nil {
		t.Fatal(err)
	}
	c.list = list
}

// bridge is the main plugin's name.
func (c *chained) bridge(t *testing.T, at guards) string {
	t.Helper()
	if at.long {
		c.Install(t, guardtest.Build(t, guardtest.Bridge), "bin", longName)
		return longName
	}
	return "bridge"
}

// longName is longer than the guard's own.
const longName = "bridge-under-a-longer-name"

// wrap puts the guard around an object: what it can do is repeated where the
// runtime looks for it.
func (c *chained) wrap(guarded bool, inner object) object {
	if !guarded {
		return inner
	}
	outer := object{"type": "ipam-guard", "delegate": inner, "guard": object{
		"lockDir": c.LockDir, "stateDir": c.StateDir,
		"log": object{"file": c.LogFile, "level": "debug"}, // else a good CHECK or STATUS leaves no line
	}}
	if can, ok := inner["capabilities"]; ok {
		outer["capabilities"] = can
	}
	return outer
}

func (c *chained) seenFile() string  { return filepath.Join(c.Dir, "seen") }
func (c *chained) tuningDir() string { return filepath.Join(c.Dir, "tuning") }

// pod is an attachment with all that a runtime may say of it.
func (c *chained) pod(t *testing.T, id string) *libcni.RuntimeConf {
	t.Helper()
	rt := c.container(t, id, "eth0")
	rt.Args = [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAME", id}}
	rt.CapabilityArgs = map[string]any{
		"portMappings": []object{{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}},
		"ips":          []string{"10.99.3.77/20"},
		"mac":          "02:11:22:33:44:55",
		"unasked":      "of no plugin",
	}
	return rt
}

// records are those of a pod that is attached: of the outermost guard in each
// place, the inner one leaves the work to it.
func (g guards) records() (want []string) {
	if g.main && g.long {
		want = append(want, longName+" pod attached")
	} else if g.main {
		want = append(want, "bridge pod attached")
	} else if g.ipam || g.shadow {
		want = append(want, "host-local pod attached")
	}
	if g.after {
		want = append(want, "portmap pod attached")
	}
	return want
}

// seen are the calls of the chained plugin so far: verb and stdin, the keys in
// order, without what is the machine's.
func (c *chained) seen(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile(c.seenFile())
	if err != nil {
		t.Fatal(err)
	}
	var calls []string
	for line := range strings.Lines(string(data)) {
		verb, stdin, _ := strings.Cut(line, " ")
		var o object
		if err := json.Unmarshal([]byte(stdin), &o); err != nil {
			t.Fatal(err)
		}
		calls = append(calls, c.normal(verb+" "+string(mustJSON(t, o))))
	}
	return calls
}

func (c *chained) normal(text string) string {
	return normal(strings.ReplaceAll(text, c.Dir, "DIR"))
}

// told is what a call that failed told the runtime. libcni puts the type that
// stands in the list before the plugin's own words.
func (c *chained) told(err error) string {
	if err == nil {
		return "nothing"
	}
	text := regexp.MustCompile(`^plugin type="[^"]*" failed`).ReplaceAllString(err.Error(), "plugin failed")
	var e *types.Error
	if asCNI(err, &e) {
		text += fmt.Sprintf(", code %d, details %q", e.Code, e.Details)
	}
	return c.normal(text)
}

// leftovers are what must be gone after the last DEL.
func (c *chained) leftovers(t *testing.T, rt *libcni.RuntimeConf) []string {
	t.Helper()
	left := values(c.reserved(t, "pods"))
	for _, address := range addresses(t, rt) {
		left = append(left, "address "+address)
	}
	err := c.netns.Do(func(ns.NetNS) error {
		links, err := netlink.LinkList()
		for _, l := range links {
			if l.Type() == "veth" {
				left = append(left, l.Attrs().Name)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	saved, err := os.ReadDir(c.tuningDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range saved {
		left = append(left, "tuning "+e.Name())
	}
	return append(left, c.records()...)
}

// records are the guard's, each as delegate and state.
func (c *chained) records() []string {
	var all []string
	j := journalOf(c.Node)
	j.Walk("", "", func(k journal.Key) {
		if e := j.Try(k); e != nil {
			all = append(all, k.Delegate+" "+k.Container+" "+string(e.State))
			e.Close()
		}
	}, func(k journal.Key) { all = append(all, "unreadable "+k.Container) })
	slices.Sort(all)
	return all
}

// change does something to a container's interface.
func (c *chained) change(t *testing.T, rt *libcni.RuntimeConf, do func(netlink.Link) error) {
	t.Helper()
	err := ns.WithNetNSPath(rt.NetNS, func(ns.NetNS) error {
		l, err := netlink.LinkByName(rt.IfName)
		if err != nil {
			return err
		}
		return do(l)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func dropAddresses(l netlink.Link) error {
	all, err := netlink.AddrList(l, netlink.FAMILY_V4)
	for _, a := range all {
		err = errors.Join(err, netlink.AddrDel(l, &a))
	}
	return err
}

// breakHostLocal puts a plugin that fails in its place.
func (m *machine) breakHostLocal(t *testing.T) (heal func()) {
	t.Helper()
	away := m.hostLocal() + ".away"
	if err := os.Rename(m.hostLocal(), away); err != nil {
		t.Fatal(err)
	}
	m.InstallScript(t, "host-local", `cat >/dev/null; echo '{"cniVersion":"1.0.0","code":100,"msg":"the store is on fire"}'; exit 1`)
	return func() {
		if err := os.Rename(away, m.hostLocal()); err != nil {
			t.Fatal(err)
		}
	}
}
