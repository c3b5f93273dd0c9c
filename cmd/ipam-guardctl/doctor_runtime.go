package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ipam-guard/ipam-guard/cmd/ipam-guardctl/internal/cri"
)

// knownRuntime is a runtime that calls CNI plugins: where its socket and its
// configuration are, and how that names the folders.
type knownRuntime struct {
	name    string
	socket  string
	configs []string // patterns; of several files a later one wins
	conf    string   // the key of the conf folder
	bin     string   // those of the folders of plugins
	confDir string   // where nothing is configured
	binDirs []string
}

var knownRuntimes = []knownRuntime{
	{"containerd", "/run/containerd/containerd.sock", []string{"/etc/containerd/config.toml", "/etc/containerd/conf.d/*.toml"},
		"conf_dir", "bin_dirs?", "/etc/cni/net.d", []string{"/opt/cni/bin"}},
	{"containerd of k3s", "/run/k3s/containerd/containerd.sock", []string{"/var/lib/rancher/k3s/agent/etc/containerd/config.toml"},
		"conf_dir", "bin_dirs?", "/var/lib/rancher/k3s/agent/etc/cni/net.d", []string{"/var/lib/rancher/k3s/data/cni"}},
	{crio, "/run/crio/crio.sock", []string{"/etc/crio/crio.conf", "/etc/crio/crio.conf.d/*"},
		"network_dir", "plugin_dirs", "/etc/cni/net.d", []string{"/opt/cni/bin"}},
	{"podman", "/run/podman/podman.sock", []string{"/usr/share/containers/containers.conf", "/etc/containers/containers.conf", "/etc/containers/containers.conf.d/*.conf"},
		"network_config_dir", "cni_plugin_dirs", "/etc/cni/net.d", []string{"/usr/local/libexec/cni", "/usr/libexec/cni", "/usr/local/lib/cni", "/usr/lib/cni", "/opt/cni/bin"}},
	{"cri-dockerd", "/run/cri-dockerd.sock", nil, "", "", "/etc/cni/net.d", []string{"/opt/cni/bin"}},
}

const crio = "CRI-O"

// foundRuntime is one of this node.
type foundRuntime struct {
	name string
	confPlace
}

// confPlace is a conf folder and the folders of plugins that go with it, as seen from
// here.
type confPlace struct {
	confDir string
	binDirs []string
}

func (p confPlace) cniPath() string { return strings.Join(p.binDirs, ":") }

func (d *doctor) lookAtRuntimes(ctx context.Context) {
	for _, k := range knownRuntimes {
		if _, err := os.Stat(d.at(k.socket)); err != nil {
			continue
		}
		folders, by := d.foldersOf(ctx, k)
		found := foundRuntime{k.name, confPlace{d.at(folders.ConfDir), nil}}
		for _, dir := range folders.BinDirs {
			found.binDirs = append(found.binDirs, d.at(strings.TrimSuffix(dir, "/")))
		}
		d.runtimes = append(d.runtimes, found)
		d.ok("runtime", "%s, %s (%s): conf folder %s, plugins in %s (%s)", k.name, k.socket, answers(d.at(k.socket)),
			found.confDir, found.cniPath(), by)
	}
	if len(d.runtimes) == 0 {
		d.ok("runtime", "none of the sockets that are known is there")
	}
}

// foldersOf are those that the runtime itself names, where it does; else those of
// its configuration files: it may have been started with others. by says who says so.
func (d *doctor) foldersOf(ctx context.Context, k knownRuntime) (folders cri.Folders, by string) {
	if slices.Contains(cri.Sockets(), k.socket) {
		if folders, err := cri.FoldersOf(ctx, d.at(k.socket)); err == nil {
			return folders, "as the runtime says"
		}
	}
	confDir, by := d.configured(k.configs, k.conf, []string{k.confDir})
	binDirs, _ := d.configured(k.configs, k.bin, k.binDirs)
	return cri.Folders{ConfDir: confDir[0], BinDirs: binDirs}, by
}

// answers says whether somebody listens at a socket.
func answers(path string) string {
	c, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return "nobody answers: " + err.Error()
	}
	_ = c.Close()
	return "answers"
}

// configured is the value of a key of a runtime's configuration: one string or a
// list of them. by says where it is from.
func (d *doctor) configured(patterns []string, key string, otherwise []string) (values []string, by string) {
	values, by = otherwise, "by default"
	if key == "" {
		return values, by
	}
	line := regexp.MustCompile(`(?m)^\s*` + key + `\s*=\s*("[^"]*"|'[^']*'|\[[^\]]*\])`)
	for _, pattern := range patterns {
		paths, _ := filepath.Glob(d.at(pattern))
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				continue
			}
			for _, m := range line.FindAllStringSubmatch(string(text), -1) {
				var list []string
				for _, q := range regexp.MustCompile(`"[^"]*"|'[^']*'`).FindAllString(m[1], -1) {
					if q = strings.Trim(q, `"'`); q != "" {
						list = append(list, q)
					}
				}
				if len(list) > 0 {
					values, by = list, "by "+path
				}
			}
		}
	}
	return values, by
}

// places are those of the runtimes, or what the administrator says.
func (d *doctor) places() []confPlace {
	var all []confPlace
	for _, r := range d.runtimes {
		all = append(all, r.confPlace)
	}
	if len(all) == 0 {
		all = []confPlace{{d.confDir, []string{d.at("/opt/cni/bin")}}}
	}
	for i := range all {
		if !d.ownConf {
			all[i].confDir = d.confDir
		}
		if d.cniPath != "" {
			all[i].binDirs = nil
			for _, dir := range filepath.SplitList(d.cniPath) {
				all[i].binDirs = append(all[i].binDirs, d.at(dir))
			}
		}
	}
	return slices.CompactFunc(all, func(a, b confPlace) bool { return a.confDir == b.confDir && slices.Equal(a.binDirs, b.binDirs) })
}

func (d *doctor) has(runtime string) bool {
	return slices.ContainsFunc(d.runtimes, func(r foundRuntime) bool { return r.name == runtime })
}
