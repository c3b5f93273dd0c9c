//go:build integration || results

package containerd_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ipam-guard/ipam-guard/integration/internal/trial"
	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// fences are the blocks of one kind in a section of README.md.
func fences(t *testing.T, section, kind string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n## "+section+"\n")
	rest, _, _ = strings.Cut(rest, "\n## ")
	for _, m := range regexp.MustCompile("(?s)\n```"+kind+"\n(.*?\n)```\n").FindAllStringSubmatch(rest, -1) {
		blocks = append(blocks, m[1])
	}
	if len(blocks) == 0 {
		t.Fatalf("README.md has no %s in its section %s", kind, section)
	}
	return blocks
}

// typed are the commands of a section's first block.
func typed(t *testing.T, section string) (commands []string) {
	t.Helper()
	for line := range strings.Lines(fences(t, section, "sh")[0]) {
		command, _, _ := strings.Cut(line, "#")
		commands = append(commands, strings.TrimSpace(command))
	}
	return commands
}

// furnish gives a jail the folders that an administrator's node has, empty but for
// what is put there: none is the machine's own.
const furnish = `set -e
mkdir -p /run/etc/upper /run/etc/work
mount -t overlay overlay -o lowerdir=/etc,upperdir=/run/etc/upper,workdir=/run/etc/work /etc
mkdir -p /etc/cni /etc/ipam-guard
for dir in /opt /var/log /etc/cni /etc/ipam-guard; do mount -t tmpfs tmpfs "$dir"; done
mkdir -p /etc/cni/net.d /opt/cni/bin /var/lib/cni/ipam-guard /var/lib/cni/networks state networks
mount --bind state /var/lib/cni/ipam-guard
mount --bind networks /var/lib/cni/networks
cp bin/bridge bin/host-local bin/loopback /opt/cni/bin
cp conflist /etc/cni/net.d/10-pods.conflist
printf '#!/bin/sh\nexec "$@"\n' > /opt/sudo && chmod +x /opt/sudo`

// newNode is a node as an administrator finds it: a containerd with its usual
// folders, whose network is README's, and no guard.
func newNode(t *testing.T) *guardctl {
	t.Helper()
	c := newGuardctl(t, latest())
	plugin := strings.Replace(fences(t, "Install", "json before")[0], `"ipMasq": true`, `"ipMasq": false`, 1)
	c.bytes = `{"cniVersion": "1.1.0", "name": "pods", "plugins": [` + "\n" + plugin + "]}\n"
	if err := os.WriteFile(filepath.Join(c.Dir, "conflist"), []byte(c.bytes), 0o644); err != nil {
		t.Fatal(err)
	}
	c.sh(t, furnish, 0)
	config := c.read(t, c.daemon.config)
	config = strings.ReplaceAll(config, c.ConfDir, "/etc/cni/net.d")
	config = strings.ReplaceAll(config, c.Bin, "/opt/cni/bin")
	if err := os.WriteFile(c.daemon.config, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	c.daemon.kill()
	c.daemon.start(t, c.Dir)
	c.ConfDir, c.Bin = c.Path("/etc/cni/net.d"), c.Path("/opt/cni/bin")
	c.conf = filepath.Join(c.ConfDir, "10-pods.conflist")
	return c
}

// sh types something at the node, and wants that exit status and these words.
func (c *guardctl) sh(t *testing.T, command string, status int, words ...string) {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", command)
	cmd.Dir = c.Dir
	cmd.Env = append(os.Environ(), "PATH=/opt:"+os.Getenv("PATH"))
	out, err := c.Jail.Run(cmd)
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	if have := cmd.ProcessState.ExitCode(); have != status {
		t.Fatalf("%s: exit status %d, want %d\n%s", command, have, status, out)
	}
	for _, w := range words {
		if !strings.Contains(out, w) {
			t.Errorf("%s: want %q in\n%s", command, w, out)
		}
	}
}

// build is `make build`, with its result in the node's folder and not in the tree.
func (c *guardctl) build(t *testing.T) {
	t.Helper()
	cmd := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-o", filepath.Join(c.Dir, "bin")+"/", "./cmd/ipam-guard", "./cmd/ipam-guardctl")
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// installs types what README says under Install.
func (c *guardctl) installs(t *testing.T) {
	t.Helper()
	commands := typed(t, "Install")
	promised := []struct {
		command string
		status  int
		words   []string
	}{
		{"make build", 0, nil},
		{"sudo bin/ipam-guardctl plan /etc/cni/net.d", 4,
			[]string{"10-pods.conflist, network pods", "bridge calls its IPAM plugin by ipam.type", `+  "ipam": {"type": "ipam-guard", "delegate": {`}},
		{"sudo bin/ipam-guardctl install /etc/cni/net.d", 0,
			[]string{"/opt/cni/bin/ipam-guard", "installed", "10-pods.conflist", "wrapped"}},
		{"sudo bin/ipam-guardctl validate /etc/cni/net.d", 0,
			[]string{"used: containerd's network", "built in", "waits at most", "position ipam, delegate host-local"}},
	}
	for i, p := range promised {
		if i >= len(commands) || commands[i] != p.command {
			t.Fatalf("README.md says %q under Install, this test knows %q", commands, p.command)
		}
		if p.command == "make build" {
			c.build(t)
			continue
		}
		c.sh(t, p.command, p.status, p.words...)
	}
	after := strings.Replace(fences(t, "Install", "json after")[0], `"ipMasq": true`, `"ipMasq": false`, 1)
	if have := c.read(t, c.conf); !strings.Contains(have, after) {
		t.Errorf("the configuration is\n%s\nwant in it\n%s", have, after)
	}
}

// logged wants the last ADD's line in the log to be as README shows one.
func (c *guardctl) logged(t *testing.T, container string) {
	t.Helper()
	var shown guardtest.Object
	if err := json.Unmarshal([]byte(fences(t, "What to see", "json")[0]), &shown); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(c.read(t, c.Path("/var/log/ipam-guard/ipam-guard.log"))) {
		var have guardtest.Object
		if err := json.Unmarshal([]byte(line), &have); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if have["verb"] != "ADD" || have["container"] != container {
			continue
		}
		delete(have, "trace_id") // where the caller has one
		if keys, want := slices.Sorted(maps.Keys(have)), slices.Sorted(maps.Keys(shown)); !slices.Equal(keys, want) {
			t.Errorf("the line has %v, README's has %v", keys, want)
		}
		for _, k := range []string{"level", "msg", "verb", "network", "ifname", "position", "delegate", "lock", "verdict"} {
			if have[k] != shown[k] {
				t.Errorf("%s is %v, README shows %v", k, have[k], shown[k])
			}
		}
		return
	}
	t.Errorf("no ADD of %s in the log", container)
}

// recorded wants that many records.
func (c *guardctl) recorded(t *testing.T, when string, want int) {
	t.Helper()
	if have := c.Records(t); have != want {
		t.Errorf("%s: %d records, want %d", when, have, want)
	}
}

// Case 55: what a new administrator does: the commands of README's "Install" and
// "Switch it off", with the folders that a node has, on a containerd with pods.
func TestGuardctlReadme(t *testing.T) {
	t.Parallel()
	c := newNode(t)
	before := c.start(t, "before")
	c.installs(t)
	before.keeps(t, c)

	guarded := c.start(t, "guarded")
	c.logged(t, guarded.id)
	c.recorded(t, "one pod since", 1)
	before.end(t, c) // it needs nothing

	bypass := fences(t, "Switch it off", "json node")[0]
	trial.WriteConf(t, c.Path("/etc/ipam-guard"), "config.json", []byte(bypass))
	past := c.start(t, "past")
	c.recorded(t, "bypass", 1)
	past.end(t, c)
	if err := os.Remove(c.Path("/etc/ipam-guard/config.json")); err != nil {
		t.Fatal(err)
	}
	again := c.start(t, "again")
	c.recorded(t, "on again", 2)

	commands := typed(t, "Switch it off")
	if want := []string{"sudo bin/ipam-guardctl uninstall /etc/cni/net.d"}; !slices.Equal(commands, want) {
		t.Fatalf("README.md says %q under Switch it off, this test knows %q", commands, want)
	}
	c.sh(t, commands[0], 5, "unwrapped", "lives", "/opt/cni/bin/ipam-guard", "stays", "give the same command again later")
	if have := c.read(t, c.conf); have != c.bytes {
		t.Errorf("after uninstall:\n%s\nwant\n%s", have, c.bytes)
	}
	unguarded := c.start(t, "unguarded")
	for _, p := range []*lodger{guarded, again, unguarded} {
		p.keeps(t, c)
		p.end(t, c)
	}
	// containerd sends the DEL with the configuration of now: their records outlive them.
	c.sh(t, commands[0], 5, "its network namespace is gone", "stays, for 2 records")
	if noted, can := c.TenMinutesOn(t); can {
		if noted != 2 {
			t.Errorf("%d records say since when their namespace is gone, want 2", noted)
		}
		c.sh(t, commands[0], 0, "released", "removed")
		c.unguarded(t)
	}
}
