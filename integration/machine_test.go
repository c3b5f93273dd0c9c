//go:build integration

package integration_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

type (
	object = guardtest.Object
	conf   = guardtest.Conf
	opts   = guardtest.Opts
)

// machine is a node whose delegate is the real host-local.
type machine struct{ *guardtest.Node }

func newMachine(t testing.TB) *machine {
	t.Helper()
	n := guardtest.New(t)
	n.Guard()
	n.Install(t, guardtest.Build(t, guardtest.HostLocal), "bin", "host-local")
	return &machine{n}
}

func (m *machine) dataDir() string   { return filepath.Join(m.Dir, "networks") }
func (m *machine) hostLocal() string { return filepath.Join(m.Bin, "host-local") }

// conf lays host-local's object over what a netconf of the node has for
// its delegate, and keeps the caller's parts on top.
func (m *machine) conf(c conf) conf {
	delegate := object{
		"type": "host-local", "dir": nil, "dataDir": m.dataDir(),
		"ranges": [][]object{{{"subnet": "10.99.0.0/20"}}},
	}
	for k, v := range c.Delegate {
		delegate[k] = v
	}
	c.Delegate = delegate
	return c
}

// reserved are host-local's reservations in a network: address ->
// container/interface.
func (m *machine) reserved(t testing.TB, network string) map[string]string {
	t.Helper()
	dir := filepath.Join(m.dataDir(), network)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	taken := map[string]string{}
	for _, e := range entries {
		if net.ParseIP(e.Name()) == nil {
			continue // its lock and where it stopped counting
		}
		owner, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		taken[e.Name()] = strings.ReplaceAll(string(owner), "\r\n", "/")
	}
	return taken
}

// logged are the guard's lines for a verb.
func (m *machine) logged(t testing.TB, verb string) []object {
	t.Helper()
	var lines []object
	for _, l := range m.Log(t) {
		if l["verb"] == verb {
			lines = append(lines, l)
		}
	}
	return lines
}

// nullValue stays null where nil would remove the key.
var nullValue = json.RawMessage("null")

func (m *machine) replaceByFolder(t testing.TB, path string) {
	t.Helper()
	err := os.RemoveAll(path)
	if err == nil {
		err = os.MkdirAll(path, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// values are a map's values, sorted.
func values(m map[string]string) []string { return slices.Sorted(maps.Values(m)) }

// asCNI finds the error object in what libcni returns.
func asCNI(err error, e **types.Error) bool { return errors.As(err, e) }

func mustJSON(t testing.TB, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
