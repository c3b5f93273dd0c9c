package trial

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// Position is where the guard sits, and what it answers where nothing helps.
type Position struct {
	Name  string
	Where string // as guardtest has it
	Above bool   // shadow: under the delegate's name, in a folder of its own
	Defer bool
}

// Guarded says whether the guard is there at all.
func (p Position) Guarded() bool { return p.Above || p.Where != guardtest.Bare }

// None is a node without the guard.
func None() Position { return Position{Name: "none", Where: guardtest.Bare} }

// IPAM is the usual position.
func IPAM() Position { return Position{Name: "ipam", Where: guardtest.IPAM} }

// Deferring is IPAM with policy.onError set to defer.
func Deferring() Position { return Position{Name: "ipam, `defer`", Where: guardtest.IPAM, Defer: true} }

// Plugin is around bridge.
func Plugin() Position { return Position{Name: "plugin", Where: guardtest.Plugin} }

// Shadow is under the delegate's name.
func Shadow() Position { return Position{Name: "shadow", Where: guardtest.Bare, Above: true} }

// Most is some positions, the one that matters most first: that one, or all.
func Most(all bool, p ...Position) []Position {
	if all {
		return p
	}
	return p[:1]
}

// Positions are those that the tables have, in their order.
func Positions() []Position { return []Position{None(), IPAM(), Deferring(), Plugin(), Shadow()} }

// Network is one that bridge makes, with the fake delegate or another one.
type Network struct {
	Version, Name string
	Delegate      func(*guardtest.Node) guardtest.Object // RealHostLocal, or the fake one
	Settings      guardtest.Object                       // of the guard
}

// RealHostLocal is a delegate of the reference plugins. Its reservations are in the node's folder,
// on a disk.
func RealHostLocal(n *guardtest.Node) guardtest.Object {
	return guardtest.Object{
		"type": "host-local", "dataDir": filepath.Join(n.Dir, "networks"),
		"ranges": [][]guardtest.Object{{{"subnet": "10.99.0.0/20"}}},
	}
}

// Reserved are host-local's reservations in a network.
func Reserved(t testing.TB, n *guardtest.Node, network string) (addresses []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(n.Dir, "networks", network))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		if net.ParseIP(e.Name()) != nil {
			addresses = append(addresses, e.Name())
		}
	}
	return addresses
}

// ReservedFor are host-local's reservations for a container in a network.
func ReservedFor(t testing.TB, n *guardtest.Node, network, container string) (addresses []string) {
	t.Helper()
	for _, address := range Reserved(t, n, network) {
		text, _ := os.ReadFile(filepath.Join(n.Dir, "networks", network, address)) // gone meanwhile: not this one's
		if strings.HasPrefix(string(text), container+"\r\n") {
			addresses = append(addresses, address)
		}
	}
	return addresses
}

// Plugins installs what a position takes and returns the folders to look in.
func (p Position) Plugins(t testing.TB, n *guardtest.Node, settings guardtest.Object) []string {
	t.Helper()
	n.Install(t, guardtest.Build(t, guardtest.HostLocal), "bin", "host-local")
	n.Install(t, guardtest.Build(t, guardtest.Bridge), "bin", "bridge")
	n.Install(t, guardtest.Build(t, loopback), "bin", "loopback") // containerd 1.6 runs it
	n.Guard()
	n.SetNodeFile(t, guardtest.Object{"defaults": p.settings(n, settings)})
	if !p.Above {
		return []string{n.Bin}
	}
	for _, name := range []string{"fake", "host-local"} {
		n.Install(t, guardtest.Build(t, guardtest.Guard), "shadow", name)
	}
	return []string{filepath.Join(n.Dir, "shadow"), n.Bin}
}

const loopback = "github.com/containernetworking/plugins/plugins/main/loopback"

// settings are the guard's on a node, for a shadow too, which has no netconf.
func (p Position) settings(n *guardtest.Node, over guardtest.Object) guardtest.Object {
	s := guardtest.Object{
		"lockDir": n.LockDir, "stateDir": n.StateDir, "log": guardtest.Object{"file": n.LogFile, "level": "debug"},
	}
	if p.Defer {
		s["policy"] = guardtest.Object{"onError": "defer"}
	}
	for k, v := range over {
		s[k] = v
	}
	return s
}

// Conflist is a network's, with the guard where the position says.
func (p Position) Conflist(n *guardtest.Node, network Network) []byte {
	ipam := guardtest.Object{"type": "fake", "dir": n.FakeDir}
	if network.Delegate != nil {
		ipam = network.Delegate(n)
	}
	bridge := guardtest.Object{"bridge": "br-" + network.Name, "ipMasq": false, "isGateway": false}
	c := guardtest.Conf{Position: p.Where, Name: network.Name, Version: network.Version, Guard: p.settings(n, network.Settings)}
	if p.Where == guardtest.Plugin {
		c.Delegate = guardtest.Object{"type": "bridge", "dir": nil, "ipam": ipam}
		for k, v := range bridge {
			c.Delegate[k] = v
		}
	} else {
		c.Delegate, c.Top = ipam, bridge
	}
	if ipam["type"] != "fake" && p.Where != guardtest.Plugin {
		c.Delegate = maps.Clone(ipam)
		c.Delegate["dir"] = nil // guardtest's own object has one
	}
	return asList(n.Netconf(c))
}

// asList makes a list of one plugin's netconf.
func asList(netconf []byte) []byte {
	var plugin map[string]json.RawMessage
	if err := json.Unmarshal(netconf, &plugin); err != nil {
		panic(err) // guardtest made it
	}
	list := guardtest.Object{"cniVersion": plugin["cniVersion"], "name": plugin["name"]}
	delete(plugin, "cniVersion")
	delete(plugin, "name")
	list["plugins"] = []any{plugin}
	text, err := json.Marshal(list)
	if err != nil {
		panic(err)
	}
	return text
}

// WriteConf puts a file into a runtime's folder the way an administrator should:
// the runtime sees it whole, and once.
func WriteConf(t testing.TB, dir, name string, text []byte) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	tmp := filepath.Join(dir, name+".new")
	err := os.WriteFile(tmp, text, 0o644)
	if err == nil {
		err = os.Rename(tmp, filepath.Join(dir, name))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// writeConf writes the same configuration anew while a DEL is at work, and
// starts another pod.
func writeConf(t testing.TB, m *Machine) string {
	files, err := filepath.Glob(filepath.Join(m.ConfDir, "*.conflist"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%s: %v, %v", m.ConfDir, files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	WriteConf(t, m.ConfDir, filepath.Base(files[0]), text)
	time.Sleep(200 * time.Millisecond) // the runtime is told by inotify, and tells nobody
	p := m.Pod("meanwhile")
	run := p.Run(patience)
	m.SetScript(t, nil)
	gone := []Answer{p.Stop(patience), p.Remove(patience)}
	return fmt.Sprintf("another pod's Run: %s; its Stop and Remove: %s, %s", run, gone[0], gone[1])
}
