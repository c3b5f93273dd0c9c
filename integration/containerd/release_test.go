//go:build integration || results

package containerd_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/ipam-guard/ipam-guard/integration/internal/fetched"
)

// release is a containerd, and how it is told to keep to itself.
type release struct {
	section    string // of the document
	name       string
	cniVersion string // what its CNI library speaks
	get        func(fetched.Cache) (dir string, err error)
	bin        string // below dir
	config     func(place) string
	networks   int // of a pod; one unless set
}

// place is what a configuration names.
type place struct {
	runc     string
	binDirs  []string // the first alone, where there can be one only
	confDir  string
	networks int
}

func releases() []release {
	return []release{
		{section: "containerd1", name: "containerd 1.6, of Debian", cniVersion: "1.0.0", get: fetched.Cache.Containerd1, bin: "usr/bin", config: config1},
		{section: "containerd2", name: "containerd 2, from its module", cniVersion: "1.1.0", get: fetched.Cache.Containerd2, config: config2},
	}
}

// folders are where its programs and runc are.
func (r release) folders(t testing.TB) (bin, runc string) {
	t.Helper()
	c, err := fetched.Default(os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := r.get(c)
	if err != nil {
		t.Fatal(err)
	}
	debian, err := c.Containerd1()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, r.bin), filepath.Join(debian, "usr/sbin/runc")
}

// versions are those of its programs.
func (r release) versions(t testing.TB) []string {
	t.Helper()
	bin, runc := r.folders(t)
	version := func(program string) string {
		out, err := exec.Command(program, "--version").Output()
		if err != nil {
			t.Fatal(err)
		}
		return filepath.Base(program) + " " + regexp.MustCompile(`\d+\.\d+\.\d+`).FindString(string(out))
	}
	return []string{version(filepath.Join(bin, "containerd")), version(runc)}
}

func config1(p place) string {
	return fmt.Sprintf(`version = 2
root = %q
state = %q
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.internal.v1.opt"]
[grpc]
  address = %q
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  disable_tcp_service = true
  netns_mounts_under_state_dir = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %q
    conf_dir = %q
    max_conf_num = %d
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = %q
        SystemdCgroup = false
`, root, state, socket, p.binDirs[0], p.confDir, p.networks, p.runc)
}

func config2(p place) string {
	return fmt.Sprintf(`version = 4
root = %q
state = %q
disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.image-verifier.v1.bindir", "io.containerd.internal.v1.opt",
  "io.containerd.snapshotter.v1.erofs", "io.containerd.snapshotter.v1.blockfile", "io.containerd.differ.v1.erofs"]
[plugins."io.containerd.server.v1.grpc"]
  address = %q
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "localhost/pause:1"
[plugins."io.containerd.cri.v1.runtime"]
  disable_tcp_service = true
  netns_mounts_under_state_dir = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = [%s]
    conf_dir = %q
    max_conf_num = %d
    use_internal_loopback = true
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
        BinaryName = %q
        SystemdCgroup = false
`, root, state, socket, quoted(p.binDirs), p.confDir, p.networks, p.runc)
}

func quoted(list []string) string {
	text := ""
	for i, s := range list {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%q", s)
	}
	return text
}
