package chain_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ipam-guard/ipam-guard/pkg/chain"
	"github.com/ipam-guard/ipam-guard/pkg/conflist"
)

func TestForDelegate(t *testing.T) {
	tests := []struct{ name, stdin, want string }{
		{
			"every other byte stays",
			"{\t\"name\":\"n\" ,\n\"x\":[9007199254740993, 1.0,1e3,\"\\u00e9<>&\"],\"ipam\" : {\"type\":\"ipam-guard\",\"guard\":{\"timeout\":\"5s\"},\"delegate\": { \"type\" : \"host-local\",\"n\":1.50 } } , \"z\":null}\r\n",
			"{\t\"name\":\"n\" ,\n\"x\":[9007199254740993, 1.0,1e3,\"\\u00e9<>&\"],\"ipam\" : { \"type\" : \"host-local\",\"n\":1.50 } , \"z\":null}\r\n",
		},
		{
			"flannel writes ranges and routes into the outer object",
			`{"name":"n","ipam":{"delegate":{"type":"host-local","ranges":[],"a":1},"type":"ipam-guard","ranges":[[{"subnet":"10.1.0.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}]}}`,
			`{"name":"n","ipam":{"type":"host-local","ranges":[[{"subnet":"10.1.0.0/24"}]],"a":1,"routes":[{"dst":"0.0.0.0/0"}]}}`,
		},
		{
			"names match in any letter case",
			`{"Name":"n","IPAM":{"Type":"ipam-guard","Delegate":{"type":"host-local"},"Guard":{}}}`,
			`{"Name":"n","IPAM":{"type":"host-local"}}`,
		},
	}
	tests = append(tests, []struct{ name, stdin, want string }{
		{
			"plugin: a type longer than the guard's, at the very end",
			`{"name":"n","delegate":{"type":"ovn-k8s-cni-overlay"},"type":"ipam-guard"}`,
			`{"name":"n","type":"ovn-k8s-cni-overlay"}`,
		},
		{
			"plugin: flannel's own delegate, and what is on both levels",
			`{"name":"n","type":"ipam-guard","guard":{},"mtu":1,"delegate":{"delegate":{"a":1},"type":"flannel","mtu":2,"guard":3},"runtimeConfig":{}}`,
			`{"name":"n","type":"flannel","mtu":1,"delegate":{"a":1},"guard":3,"runtimeConfig":{}}`,
		},
	}...)
	for _, tt := range tests {
		got, problems := chain.ForDelegate([]byte(tt.stdin))
		if string(got) != tt.want || len(problems) > 0 {
			t.Errorf("%s:\n got %s\nwant %s\nproblems %v", tt.name, got, tt.want, problems)
		}
	}
}

func TestNetconfProblems(t *testing.T) {
	tests := []struct{ name, stdin, key string }{
		{"two ipam", `{"name":"n","ipam":{},"IPAM":{"type":"g","delegate":{"type":"x"}}}`, "IPAM"},
		{"two types", `{"name":"n","ipam":{"type":"g","delegate":{"type":"x","Type":"y"}}}`, "ipam.delegate.Type"},
		{"two delegates", `{"name":"n","ipam":{"type":"g","delegate":{"type":"x"},"delegate":{"type":"x"}}}`, "ipam.delegate"},
		{"itself", `{"name":"n","ipam":{"type":"g","delegate":{"type":"g"}}}`, "ipam.delegate.type"},
		{"no name", `{"ipam":{"type":"g","delegate":{"type":"x"}}}`, "name"},
		{"bad name", `{"name":"../n","ipam":{"type":"g","delegate":{"type":"x"}}}`, "name"},
		{"number for a name", `{"name":"n","cniVersion":1,"ipam":{"type":"g","delegate":{"type":"x"}}}`, "cniVersion"},
	}
	for _, tt := range tests {
		got, problems := chain.ForDelegate([]byte(tt.stdin))
		if got == nil {
			t.Errorf("%s: a DEL could not go on", tt.name)
		}
		if len(problems) != 1 || problems[0].Key != tt.key {
			t.Errorf("%s: %v, want %s", tt.name, problems, tt.key)
		}
	}
}

// Case 10: host-local's garbage collection removes every foreign file from its
// store, so none of our folders may be there, by whatever name.
func TestFoldersInsideHostLocalsStore(t *testing.T) {
	dir := t.TempDir()
	data := filepath.Join(dir, "networks")
	if err := os.MkdirAll(filepath.Join(data, "n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(data, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		stateDir, lockDir, delegate string
		keys                        string
	}{
		{data + "/n", "/run/x", "host-local", "guard.stateDir"},
		{"/x", data + "/n/../n/deep/er", "host-local", "guard.lockDir"},
		{dir + "/link/n/x", dir + "/link/n", "host-local", "guard.stateDir guard.lockDir"},
		{data + "/n2", data, "host-local", ""},
		{data + "/n", data + "/n", "whereabouts", ""},
	}
	for _, tt := range tests {
		conf, _ := json.Marshal(map[string]any{"name": "n", "ipam": map[string]any{
			"type": "ipam-guard", "delegate": map[string]any{"type": tt.delegate, "dataDir": data},
			"guard": map[string]any{"stateDir": tt.stateDir, "lockDir": tt.lockDir},
		}})
		_, problems := chain.ForDelegate(conf)
		var keys []string
		for _, p := range problems {
			keys = append(keys, p.Key)
		}
		if got := strings.Join(keys, " "); got != tt.keys {
			t.Errorf("%s, %s: problems with %q, want %q", tt.stateDir, tt.lockDir, got, tt.keys)
		}
	}
}

// FuzzNetconf: of any configuration that a delegate can be run by, every byte
// outside of `ipam` reaches it, and its own object's members keep theirs.
func FuzzNetconf(f *testing.F) {
	f.Add([]byte(`{"name":"n","ipam":{"type":"ipam-guard","delegate":{"type":"host-local","a":9007199254740993}},"z":1.0}`))
	f.Add([]byte(` {"ipam" : {"delegate":{"type":"x"},"guard":{"mode":"bypass"},"ranges":[]}, "cni.dev/valid-attachments":null}`))
	f.Add([]byte("{\"ipam\":{\"delegate\":{\"type\":\"x\",\"k\":\"\xff\"}},\"IPAM\":{\"delegate\":{\"type\":\"y\"}}}"))
	f.Fuzz(func(t *testing.T, stdin []byte) {
		got, _ := chain.ForDelegate(stdin)
		if got == nil {
			return
		}
		if !json.Valid(got) {
			t.Fatalf("not JSON: %q", got)
		}
		in, _ := conflist.Parse(stdin)
		m, _ := in.Find("ipam")
		if !bytes.HasPrefix(got, stdin[:m.Value.Start]) || !bytes.HasSuffix(got, stdin[m.Value.End:]) {
			t.Fatalf("bytes outside of ipam changed:\n %q\n %q", stdin, got)
		}
		ipam, _ := in.Nested(m)
		del, _ := ipam.Object("delegate")
		out, err := conflist.Parse(got[m.Value.Start : len(got)-(len(stdin)-m.Value.End)])
		if err != nil {
			t.Fatalf("the delegate's object is broken: %v in %q", err, got)
		}
		for i, want := range del.Members {
			have := out.Members[i]
			if have.Name != want.Name {
				t.Fatalf("member %d is %q, was %q", i, have.Name, want.Name)
			}
			if _, over := ipam.Find(want.Name); !over && !bytes.Equal(out.Text(have.Value), del.Text(want.Value)) {
				t.Fatalf("%q changed to %q", want.Name, out.Text(have.Value))
			}
		}
	})
}
