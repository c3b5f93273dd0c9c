// Package conf_test holds the examples to what they promise: a guarded twin changes nothing for its delegate.
// It also holds the documents to what the plugin does: see docs_test.go and examples_test.go.
package conf_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
	"github.com/ipam-guard/ipam-guard/pkg/conflist"
)

func TestMain(m *testing.M) { guardtest.Main(m) }

// list is a conflist whose plugins are still the bytes of the file.
type list struct {
	CNIVersion string            `json:"cniVersion"`
	Name       string            `json:"name"`
	Plugins    []json.RawMessage `json:"plugins"`
}

func read(t *testing.T, path string) ([]byte, list) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := libcni.NetworkConfFromBytes(text); err != nil {
		t.Fatalf("%s: libcni refuses it: %v", path, err)
	}
	var l list
	if err := json.Unmarshal(text, &l); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return text, l
}

// originals are the conflists without the guard that have a twin in a folder.
func originals(t *testing.T, folder string) []string {
	t.Helper()
	twins, _ := filepath.Glob(folder + "/*.conflist")
	for i, p := range twins {
		twins[i] = filepath.Base(p)
	}
	if len(twins) == 0 {
		t.Fatalf("conf/%s holds no conflist", folder)
	}
	return twins
}

// Every example has a twin, every twin its original, and every file its line in the table.
func TestTwins(t *testing.T) {
	paths, _ := filepath.Glob("*.conflist")
	twins := append(originals(t, "guarded"), originals(t, "plugin")...)
	slices.Sort(twins)
	if diff := cmp.Diff(paths, twins); diff != "" {
		t.Errorf("conf/ and its twins don't hold the same files:\n%s", diff)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	shadows, _ := filepath.Glob("shadow/*")
	for _, path := range append(paths, shadows...) {
		if !bytes.Contains(readme, []byte("("+path+")")) {
			t.Errorf("conf/README.md doesn't say why %s is as it is", path)
		}
	}
}

// ipam returns the bytes of a plugin's ipam object, nil if it has none.
func ipam(t *testing.T, plugin []byte) []byte {
	t.Helper()
	o, err := conflist.Parse(plugin)
	if err != nil {
		t.Fatal(err)
	}
	return o.Value("ipam")
}

// Twins differ in the ipam objects and nowhere else, white space included.
func TestTwinsDifferInIPAMOnly(t *testing.T) {
	for _, path := range originals(t, "guarded") {
		bare, original := read(t, path)
		wrapped, guarded := read(t, filepath.Join("guarded", path))
		bare, wrapped = blank(t, bare, original), blank(t, wrapped, guarded)
		if diff := cmp.Diff(string(bare), string(wrapped)); diff != "" {
			t.Errorf("%s, the ipam objects aside:\n%s", path, diff)
		}
	}
}

// blank takes the ipam objects out of a conflist.
func blank(t *testing.T, text []byte, l list) []byte {
	t.Helper()
	for _, plugin := range l.Plugins {
		if object := ipam(t, plugin); object != nil {
			text = bytes.Replace(text, object, []byte("IPAM"), 1)
		}
	}
	return text
}

// How a runtime's library adds the network's name and version to a plugin's object: libcni encodes all of it anew,
// which hides what the guard does to white space and order; as text, only the two are added.
var injections = map[string]func(t *testing.T, plugin []byte, name, version string) []byte{
	"libcni": func(t *testing.T, plugin []byte, name, version string) []byte {
		conf, err := libcni.InjectConf(
			&libcni.PluginConfig{Network: &types.PluginConf{}, Bytes: plugin},
			map[string]any{"name": name, "cniVersion": version})
		if err != nil {
			t.Fatal(err)
		}
		return conf.Bytes
	},
	"text": func(_ *testing.T, plugin []byte, name, version string) []byte {
		return fmt.Appendf(nil, `{"name": %q, "cniVersion": %q,%s`, name, version, plugin[1:])
	},
}

// What the delegate gets through the guard is, byte for byte, what it would get without.
func TestDelegateSeesTheOriginal(t *testing.T) {
	for _, path := range originals(t, "guarded") {
		_, original := read(t, path)
		_, guarded := read(t, filepath.Join("guarded", path))
		compared := 0
		for i, plugin := range original.Plugins {
			if ipam(t, plugin) == nil {
				continue
			}
			compared++
			for name, inject := range injections {
				t.Run(path+"/"+name, func(t *testing.T) {
					before := inject(t, plugin, original.Name, original.CNIVersion)
					after := inject(t, guarded.Plugins[i], guarded.Name, guarded.CNIVersion)
					sameForDelegate(t, before, after)
				})
			}
		}
		if compared == 0 {
			t.Errorf("%s: no plugin with an ipam object", path)
		}
	}
}

// sameForDelegate calls the guard with the netconf after, and compares what its delegate gets with the netconf before.
func sameForDelegate(t *testing.T, before, after []byte) {
	t.Helper()
	n := guardtest.New(t)
	r := newRecorder(t, n, delegateOf(t, before))
	for _, verb := range []string{"ADD", "DEL"} {
		r.call(t, verb, after).OK(t)
		got := r.stdin(t)
		if bytes.Equal(after, before) || bytes.Contains(got, []byte("ipam-guard")) {
			t.Errorf("%s: there is no guard to see, or the delegate sees it: %s", verb, got)
		}
		if diff := cmp.Diff(string(before), string(got)); diff != "" {
			t.Errorf("%s: the delegate's stdin (-without +with the guard):\n%s", verb, diff)
		}
	}
}

// A plugin behind the guard gets what it would get without: all of its members, none of the guard's, and the runtime
// sees the capabilities of both.
func TestPluginSeesTheOriginal(t *testing.T) {
	for _, path := range originals(t, "plugin") {
		_, original := read(t, path)
		_, guarded := read(t, filepath.Join("plugin", path))
		wrapped := 0
		for i, plugin := range original.Plugins {
			before := injections["libcni"](t, plugin, original.Name, original.CNIVersion)
			after := injections["libcni"](t, guarded.Plugins[i], guarded.Name, guarded.CNIVersion)
			if bytes.Equal(before, after) {
				continue
			}
			wrapped++
			n := guardtest.New(t)
			r := newRecorder(t, n, decoded(t, before)["type"].(string))
			for _, verb := range []string{"ADD", "DEL"} {
				r.call(t, verb, after).OK(t)
				if diff := cmp.Diff(decoded(t, before), decoded(t, r.stdin(t))); diff != "" {
					t.Errorf("%s: %s: the plugin's stdin (-without +with the guard):\n%s", path, verb, diff)
				}
			}
			if diff := cmp.Diff(decoded(t, before)["capabilities"], decoded(t, after)["capabilities"]); diff != "" {
				t.Errorf("%s: capabilities (-without +with the guard):\n%s", path, diff)
			}
		}
		if wrapped != 1 {
			t.Errorf("%s: %d plugins differ, want the first", path, wrapped)
		}
	}
}

func decoded(t *testing.T, text []byte) map[string]any {
	t.Helper()
	var object map[string]any
	mustDecode(t, text, &object)
	return object
}

// A node's file for shadows has settings that the guard takes.
func TestShadowsNodeFile(t *testing.T) {
	file, err := os.ReadFile("shadow/config.json")
	if err != nil {
		t.Fatal(err)
	}
	for delegate := range decoded(t, file)["delegates"].(map[string]any) {
		n := guardtest.New(t)
		var settings map[string]any
		mustDecode(t, file, &settings)
		settings["defaults"] = map[string]any{"log": map[string]any{"file": n.LogFile}, "stateDir": n.StateDir, "lockDir": n.LockDir}
		n.SetNodeFile(t, settings)
		n.Install(t, guardtest.Build(t, guardtest.Fake), "bin", delegate)
		shadow := n.Install(t, n.Guard(), "first", delegate)
		o := guardtest.Opts{Binary: shadow, Path: filepath.Dir(shadow) + ":" + n.Bin, Conf: guardtest.Conf{
			Position: guardtest.Bare, Delegate: guardtest.Object{"type": delegate},
		}}
		n.Run(t, "ADD", "c1", o).OK(t)
		n.SetScript(t, guardtest.Script{"DEL": `exit 1 "no" 100`})
		n.Run(t, "DEL", "c1", o).OK(t)
		if line := n.Log(t)[1]; line["position"] != "shadow" || line["verdict"] != "defer" {
			t.Errorf("%s: logged %v", delegate, line)
		}
	}
}

func mustDecode(t *testing.T, text []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}

// delegateOf is the type in a netconf's ipam object.
func delegateOf(t *testing.T, netconf []byte) string {
	t.Helper()
	var object struct{ Type string }
	if err := json.Unmarshal(ipam(t, netconf), &object); err != nil || object.Type == "" {
		t.Fatalf("no ipam type in %s (%v)", netconf, err)
	}
	return object.Type
}

// A recorder is a delegate that keeps what it got on stdin.
type recorder struct {
	n    *guardtest.Node
	file string
}

func newRecorder(t *testing.T, n *guardtest.Node, name string) recorder {
	t.Helper()
	n.InstallScript(t, name, `cat >"$RECORD"
echo '2026-12-02T02:00:00Z [debug] IPManagement: [], <nil>' >&2 # as whereabouts shows that it is done
[ "$CNI_COMMAND" != ADD ] || echo '{"cniVersion": "1.0.0", "ips": [{"address": "10.22.0.2/16"}]}'`)
	return recorder{n, filepath.Join(n.Dir, "stdin")}
}

func (r recorder) call(t *testing.T, verb string, netconf []byte) guardtest.Result {
	t.Helper()
	_ = os.Remove(r.file)
	return r.n.Run(t, verb, "c1", guardtest.Opts{Stdin: netconf, Env: []string{"RECORD=" + r.file}})
}

func (r recorder) stdin(t *testing.T) []byte {
	t.Helper()
	got, err := os.ReadFile(r.file)
	if err != nil {
		t.Fatalf("the delegate was not run: %v", err)
	}
	return got
}
