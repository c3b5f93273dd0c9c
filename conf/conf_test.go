// Package conf_test holds the example conflists to what they promise: a guarded twin changes nothing for its delegate.
// It also holds the documents to what the plugin does: see docs_test.go and examples_test.go.
package conf_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
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

// originals are the conflists without the guard; every twin has one.
func originals(t *testing.T) []string {
	t.Helper()
	paths, _ := filepath.Glob("*.conflist")
	twins, _ := filepath.Glob("guarded/*.conflist")
	for i, p := range twins {
		twins[i] = filepath.Base(p)
	}
	if diff := cmp.Diff(paths, twins); diff != "" || len(paths) == 0 {
		t.Fatalf("conf/ and conf/guarded/ don't hold the same files:\n%s", diff)
	}
	return paths
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
	for _, path := range originals(t) {
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
	for _, path := range originals(t) {
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
