//go:build integration || results

package containerd_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/ipam-guard/ipam-guard/integration/internal/trial"
	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// network is what kubelet is told of the network: "" while it is ready.
func (d *daemon) network(t testing.TB) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), long)
	defer cancel()
	status, err := d.cri.Status(ctx, &cri.StatusRequest{})
	if err != nil {
		t.Error(err)
		return err.Error()
	}
	for _, c := range status.Status.Conditions {
		if c.Type == cri.NetworkReady && c.Status {
			return ""
		}
		if c.Type == cri.NetworkReady {
			return c.Message
		}
	}
	t.Error("no word of the network in containerd's status")
	return "not told"
}

// noNetwork is what containerd says when it has none.
const noNetwork = "cni plugin not initialized"

// first is a file that comes before a good one in the folder.
type first struct {
	name, text string
	ready      string // what kubelet is told of the network
	run        string // what a pod comes to
	starts     bool   // containerd is started with it; else it runs when the file arrives
}

func firstFiles() []first {
	const nowhere = `{"cniVersion": "1.1.0", "name": "early", "plugins": [{"type": "nowhere"}]}`
	return []first{
		{"05-half.conflist", `{"name": "early", "plug`, noNetwork, noNetwork, true},
		{"05-list.json", `{"cniVersion": "1.0.0", "name": "early", "plugins": [{"type": "bridge"}]}`, noNetwork, noNetwork, false},
		{".05-hidden.conflist", "not JSON", noNetwork, noNetwork, false},
		// These are loaded, and each pod fails. Where version 1.1.0 is known, plugins are asked for their STATUS.
		{"05-nameless.conf", `{"cniVersion": "1.0.0", "type": "bridge"}`, "", "missing network name", true},
		{"05-no-binary.conflist", nowhere, `failed to find plugin "nowhere"`, `failed to find plugin "nowhere"`, true},
		{"05-backup.conflist.bak", "not JSON", "", "", true},
	}
}

// The first file by name is containerd's network. It doesn't go on to the next one
// where that is no good, neither at its start nor while it runs: then no pod can be
// started, nor stopped. What validate says of the file is so.
func TestGuardctlFirstFile(t *testing.T) {
	for _, r := range releases() {
		t.Run(r.section, func(t *testing.T) {
			t.Parallel()
			c := newGuardctl(t, r)
			// What a killed guardctl leaves, and a bad file after the good one, are never looked at.
			trial.WriteConf(t, c.ConfDir, ".05-early.conflist.ipam-guardctl", []byte("not JSON"))
			trial.WriteConf(t, c.ConfDir, "zz-later.conflist", []byte("not JSON"))
			for _, f := range firstFiles() {
				if r.cniVersion == "1.0.0" && f.ready != noNetwork {
					f.ready = ""
				}
				c.comesFirst(t, f)
			}
		})
	}
}

func (c *guardctl) comesFirst(t *testing.T, f first) {
	t.Helper()
	trial.WriteConf(t, c.ConfDir, f.name, []byte(f.text))
	if f.starts {
		c.daemon.kill()
		c.daemon.start(t, c.Dir)
	} else {
		c.awaitNetwork(t, f.ready)
	}
	if have := c.daemon.network(t); !says(have, f.ready) {
		t.Errorf("%s: network: %q, want %q", f.name, have, f.ready)
	}
	c.tries(t, f.name, f.run)
	c.validates(t, f)
	if err := os.Remove(filepath.Join(c.ConfDir, f.name)); err != nil {
		t.Fatal(err)
	}
	c.awaitNetwork(t, "")
}

// says is whether an answer is well, or has these words.
func says(have, want string) bool {
	return (have == "") == (want == "") && strings.Contains(have, want)
}

// tries runs a pod, and wants it to come to that.
func (c *guardctl) tries(t *testing.T, name, want string) {
	t.Helper()
	p := &pod{daemon: c.daemon, name: "with-" + name}
	have := ""
	if a := p.Run(long); a.Err != nil {
		have = a.Err.Error()
	} else {
		trial.OK(t, "Stop", p.Stop(long))
		trial.OK(t, "Remove", p.Remove(long))
	}
	if !says(have, want) {
		t.Errorf("%s: Run: %q, want %q", name, have, want)
	}
}

// validates: the tool finds something where pods fail, and says of the file what
// becomes of it.
func (c *guardctl) validates(t *testing.T, f first) {
	t.Helper()
	words := "refused: containerd starts and stops no pod as long as this file comes first"
	switch {
	case strings.Contains(f.run, "failed to find plugin"):
		words = `FINDING: plugins[0] nowhere: no plugin "nowhere"`
	case f.run == "":
		words = c.conf + ", network pods\n  used: containerd's network"
	}
	// zz-later is always a finding.
	if out := c.run(t, []string{"validate", "--cni-path", c.Bin, c.ConfDir}, 3); !strings.Contains(out, words) {
		t.Errorf("%s: want %q in\n%s", f.name, words, out)
	}
}

func (c *guardctl) awaitNetwork(t *testing.T, want string) {
	t.Helper()
	guardtest.Eventually(t, "the network: "+want, func() bool { return says(c.daemon.network(t), want) })
}

// A bad file that comes to the folder of a running containerd takes the network
// away at once, from those pods too that run: they can't be stopped before it has
// gone.
func TestGuardctlFirstFileArrives(t *testing.T) {
	for _, r := range releases() {
		t.Run(r.section, func(t *testing.T) {
			t.Parallel()
			c := newGuardctl(t, r)
			p := c.start(t, "lives")
			trial.WriteConf(t, c.ConfDir, "05-half.conflist", []byte(`{"name": "early", "plug`))
			c.awaitNetwork(t, noNetwork)
			c.tries(t, "half", noNetwork)
			if a := p.Stop(long); a.Err == nil || !strings.Contains(a.Err.Error(), noNetwork) {
				t.Errorf("Stop of a pod that runs: %v, want %q", a.Err, noNetwork)
			}
			p.keeps(t, c)
			if err := os.Remove(filepath.Join(c.ConfDir, "05-half.conflist")); err != nil {
				t.Fatal(err)
			}
			c.awaitNetwork(t, "")
			p.end(t, c)
		})
	}
}
