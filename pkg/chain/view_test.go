package chain_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ipam-guard/ipam-guard/pkg/chain"
)

// Every setting is shown, but for the names that stand for several.
func TestViewShowsEverySetting(t *testing.T) {
	var shown []string
	for _, o := range chain.ViewOf("host-local", "/nowhere", nil).Origins {
		shown = append(shown, o.Key)
		if o.From != "built in" {
			t.Errorf("%s is from %s", o.Key, o.From)
		}
	}
	for _, key := range chain.Keys() {
		if group := key == "timeout" || key == "deadline" || key == "retry.attempts"; !group && !slices.Contains(shown, key) {
			t.Errorf("%s is not shown", key)
		}
	}
}

func TestOrigins(t *testing.T) {
	node := filepath.Join(t.TempDir(), "config.json")
	text := `{"defaults": {"timeout": "11s", "log": {"level": "info"}, "retry": {"attempts": 4}, "lock": {"scope": 1}},
		"delegates": {"whereabouts": {"timeout": {"gc": "12s"}, "policy": {"rules": []}}, "other": {"mode": "bypass"}}}`
	if err := os.WriteFile(node, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	guard := `{"timeout": {"check": "13s"}, "deadline": {"del": "1s"}, "confirm": {"line": "l", "ok": "o"}, "log": {"file": "/x/y"}}`
	v := chain.ViewOf("whereabouts", node, []byte(guard))
	defaults, entry := node+", defaults", node+", delegates.whereabouts"
	for key, want := range map[string][2]string{
		"mode":               {"guard", "built in"},
		"timeout.add":        {"11s", defaults}, // over what is built in for it
		"timeout.status":     {"2s", "built in"},
		"timeout.gc":         {"12s", entry},
		"timeout.check":      {"13s", "netconf"},
		"deadline.add":       {"3m0s", "built in for whereabouts"},
		"deadline.del":       {"50s", "built in: what was set does not fit together"},
		"retry.attempts.del": {"4", defaults},
		"retry.attempts.add": {"1", "built in"},
		"log.level":          {"info", defaults}, // the same value, but it is said
		"log.file":           {"/x/y", "netconf"},
		"lock.scope":         {"delegate", "built in"}, // wrong, so left out
		"policy.rules":       {"", entry},
		"confirm":            {`{"line":"l","ok":"o","reject":"","set":null}`, "netconf"},
	} {
		i := slices.IndexFunc(v.Origins, func(o chain.Origin) bool { return o.Key == key })
		if i < 0 {
			t.Fatalf("%s is not shown", key)
		}
		if o := v.Origins[i]; o.Value != want[0] || o.From != want[1] {
			t.Errorf("%s: %s from %s, want %s from %s", key, o.Value, o.From, want[0], want[1])
		}
	}
	if len(v.Problems) != 2 {
		t.Errorf("problems: %v", v.Problems)
	}
}

func TestViewOfNetconf(t *testing.T) {
	for conf, want := range map[string]chain.View{
		`{"name": "n", "type": "bridge", "ipam": {"type": "ipam-guard", "delegate": {"type": "dhcp"}}}`: {Position: "ipam", Network: "n", Delegate: "dhcp"},
		`{"name": "m", "type": "ipam-guard", "delegate": {"type": "calico", "ipam": {"type": "x"}}}`:    {Position: "plugin", Network: "m", Delegate: "calico"},
	} {
		v, err := chain.ViewOfNetconf([]byte(conf), "/nowhere")
		if err != nil || v.Position != want.Position || v.Network != want.Network || v.Delegate != want.Delegate || len(v.Problems) > 0 {
			t.Errorf("%s: %+v, %v", conf, v, err)
		}
	}
	if _, err := chain.ViewOfNetconf([]byte(`{"ipam": {"type": "ipam-guard"}}`), "/nowhere"); err == nil {
		t.Error("no delegate, no error")
	}
}
