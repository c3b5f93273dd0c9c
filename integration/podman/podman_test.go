//go:build integration || results

package podman_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ipam-guard/ipam-guard/integration/internal/fetched"
	"github.com/ipam-guard/ipam-guard/integration/internal/jail"
	"github.com/ipam-guard/ipam-guard/integration/internal/trial"
	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// podman is one in a jail. There is no daemon: each call is a process, and
// conmon, which stays with a container, calls it once more at the end.
type podman struct {
	*jail.Jail
	dir    string // of the node
	debian string // where podman is unpacked
	rootfs string
}

func newPodman(t testing.TB, n *guardtest.Node, binDirs ...string) *podman {
	t.Helper()
	c, err := fetched.Default(os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	debian, err := c.Podman()
	if err != nil {
		t.Fatal(err)
	}
	p := &podman{Jail: jail.New(t), dir: n.Dir, debian: debian, rootfs: filepath.Join(n.Dir, "rootfs")}
	n.Install(t, guardtest.Build(t, "github.com/ipam-guard/ipam-guard/integration/internal/pause"), "rootfs", "pause")
	// conmon keeps the environment from it.
	n.InstallScript(t, "runc", fmt.Sprintf("LD_LIBRARY_PATH=%s exec %s/usr/sbin/runc \"$@\"", p.libraries(), debian))
	if err := os.WriteFile(p.config(), p.containersConf(binDirs), 0o644); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *podman) config() string  { return filepath.Join(p.dir, "containers.conf") }
func (p *podman) confDir() string { return filepath.Join(p.dir, "net.d") }

// libraries are where those of Debian's are, whatever the machine is called there.
func (p *podman) libraries() string {
	dirs, _ := filepath.Glob(p.debian + "/usr/lib/*-linux-gnu*")
	more, _ := filepath.Glob(p.debian + "/lib/*-linux-gnu*")
	return strings.Join(append(dirs, more...), ":")
}

func (p *podman) containersConf(binDirs []string) []byte {
	return fmt.Appendf(nil, `[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
runtime = "runc"
conmon_path = [%q]
[engine.runtimes]
runc = [%q]
[network]
network_backend = "cni"
cni_plugin_dirs = ["%s"]
network_config_dir = %q
`, p.debian+"/usr/bin/conmon", filepath.Join(p.dir, "bin/runc"), strings.Join(binDirs, `", "`), p.confDir())
}

// call runs podman to its end, or until the caller's patience is: then it is
// killed, as by a person or a service manager.
func (p *podman) call(patience time.Duration, args ...string) (string, trial.Answer) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.debian+"/usr/bin/podman",
		append([]string{"--root", "/var/lib/containers/storage", "--runroot", "/run/containers/storage", "--tmpdir", "/run/libpod",
			"--storage-driver", "vfs"}, args...)...)
	cmd.Dir = p.dir
	cmd.WaitDelay = time.Second
	cmd.Env = append(os.Environ(), "CONTAINERS_CONF="+p.config(), "PATH="+p.debian+"/usr/bin:"+os.Getenv("PATH"),
		"LD_LIBRARY_PATH="+p.libraries())
	began := time.Now()
	out, err := p.Run(cmd)
	if ctx.Err() != nil {
		err = errors.Join(err, ctx.Err())
	}
	return strings.TrimSpace(out), trial.Answer{Err: err, Took: time.Since(began)}
}

// container is a trial.Pod.
type container struct {
	*podman
	name     string
	networks string
}

func (c *container) Run(patience time.Duration) trial.Answer {
	_, a := c.call(patience, "run", "--detach", "--name", c.name, "--network", c.networks, "--cgroup-parent", "/"+c.Name,
		"--security-opt", "seccomp=unconfined", "--rootfs", c.rootfs, "/pause")
	return a
}

func (c *container) Stop(patience time.Duration) trial.Answer {
	_, a := c.call(patience, "stop", "--time", "5", c.name)
	return a
}

func (c *container) Remove(patience time.Duration) trial.Answer {
	_, a := c.call(patience, "rm", "--force", "--ignore", c.name)
	return a
}

func (c *container) State() string {
	out, a := c.call(time.Minute, "inspect", "--type", "container", "--format", "{{.State.Status}}", c.name)
	if a.Err == nil {
		return out
	}
	if strings.Contains(a.Err.Error(), "no such") {
		return trial.Gone
	}
	return a.Err.Error()
}

func newMachine(t testing.TB, p trial.Position, nets ...trial.Network) (*trial.Machine, *podman) {
	t.Helper()
	n := guardtest.New(t)
	dirs := p.Plugins(t, n, nets[0].Settings)
	var names []string
	for _, net := range nets {
		net.Version = "1.0.0"
		names = append(names, net.Name)
		trial.WriteConf(t, filepath.Join(n.Dir, "net.d"), net.Name+".conflist", p.Conflist(n, net))
	}
	pm := newPodman(t, n, dirs...)
	return &trial.Machine{
		Node: n, Jail: pm.Jail, Position: p, ConfDir: pm.confDir(),
		Pod: func(name string) trial.Pod {
			return &container{podman: pm, name: name, networks: strings.Join(names, ",")}
		},
	}, pm
}

// versions are those of its programs.
func versions(t testing.TB) []string {
	t.Helper()
	m, pm := newMachine(t, trial.None(), trial.Network{Name: "pods"})
	_ = m
	out, a := pm.call(time.Minute, "version", "--format", "podman {{.Client.Version}}")
	if a.Err != nil {
		t.Fatal(a.Err)
	}
	return []string{out}
}
