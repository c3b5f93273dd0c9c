// Package podman runs Debian's podman, with its CNI backend, in a jail, beside
// whatever else runs there. There is no daemon: each call is a process, and
// conmon, which stays with a container, calls podman once more at the end.
//
// It promises that all that podman starts and keeps is the jail's, and gone with
// it. Which networks there are, and which plugins, is left to who makes the
// folders.
package podman

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

// Podman is one in a jail.
type Podman struct {
	*jail.Jail
	ConfDir string // its networks

	dir    string // of the node
	debian string // where podman is unpacked
	rootfs string
}

// New makes what podman needs in a node's folder. It looks for plugins in binDirs.
func New(t testing.TB, j *jail.Jail, n *guardtest.Node, binDirs ...string) *Podman {
	t.Helper()
	c, err := fetched.Default(os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	debian, err := c.Podman()
	if err != nil {
		t.Fatal(err)
	}
	p := &Podman{Jail: j, ConfDir: filepath.Join(n.Dir, "net.d"), dir: n.Dir, debian: debian, rootfs: filepath.Join(n.Dir, "rootfs")}
	n.Install(t, guardtest.Build(t, "github.com/ipam-guard/ipam-guard/integration/internal/pause"), "rootfs", "pause")
	// conmon keeps the environment from it.
	n.InstallScript(t, "runc", fmt.Sprintf("LD_LIBRARY_PATH=%s exec %s/usr/sbin/runc \"$@\"", p.libraries(), debian))
	if err := os.WriteFile(p.config(), p.containersConf(binDirs), 0o644); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *Podman) config() string { return filepath.Join(p.dir, "containers.conf") }

// libraries are where those of Debian's are, whatever the machine is called there.
func (p *Podman) libraries() string {
	dirs, _ := filepath.Glob(p.debian + "/usr/lib/*-linux-gnu*")
	more, _ := filepath.Glob(p.debian + "/lib/*-linux-gnu*")
	return strings.Join(append(dirs, more...), ":")
}

func (p *Podman) containersConf(binDirs []string) []byte {
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
`, p.debian+"/usr/bin/conmon", filepath.Join(p.dir, "bin/runc"), strings.Join(binDirs, `", "`), p.ConfDir)
}

// Call runs podman to its end, or until the caller's patience is: then it is
// killed, as by a person or a service manager. It returns what podman said.
func (p *Podman) Call(patience time.Duration, args ...string) (string, trial.Answer) {
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
	out, err := p.Jail.Run(cmd)
	if ctx.Err() != nil {
		err = errors.Join(err, ctx.Err())
	}
	return strings.TrimSpace(out), trial.Answer{Err: err, Took: time.Since(began)}
}

// Container is a trial.Pod.
type Container struct {
	*Podman
	Name     string
	Networks []string
}

// Run is a trial.Pod's.
func (c *Container) Run(patience time.Duration) trial.Answer {
	_, a := c.Call(patience, "run", "--detach", "--name", c.Name, "--network", strings.Join(c.Networks, ","),
		"--cgroup-parent", "/"+c.Jail.Name, "--security-opt", "seccomp=unconfined", "--rootfs", c.rootfs, "/pause")
	return a
}

// Stop is a trial.Pod's.
func (c *Container) Stop(patience time.Duration) trial.Answer {
	_, a := c.Call(patience, "stop", "--time", "5", c.Name)
	return a
}

// Remove is a trial.Pod's.
func (c *Container) Remove(patience time.Duration) trial.Answer {
	_, a := c.Call(patience, "rm", "--force", "--ignore", c.Name)
	return a
}

// State is podman's word for it.
func (c *Container) State() string {
	out, a := c.Inspect("{{.State.Status}}")
	if a.Err == nil {
		return out
	}
	if strings.Contains(a.Err.Error(), "no such") {
		return trial.Gone
	}
	return a.Err.Error()
}

// Inspect returns what podman knows of it, in a format of podman's.
func (c *Container) Inspect(format string) (string, trial.Answer) {
	return c.Call(time.Minute, "inspect", "--type", "container", "--format", format, c.Name)
}
