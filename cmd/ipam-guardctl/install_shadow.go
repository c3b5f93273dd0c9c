package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ipam-guard/ipam-guard/pkg/delegate"
)

func (t *tool) installShadow(ctx context.Context, o installOptions) error {
	dirs, err := folders(o.cniPath)
	if err != nil {
		return err
	}
	if len(dirs) < 2 {
		return usagef("--shadow needs two folders in --cni-path: the first for the guard, the plugin %s in a later one, like %s", o.shadow, shadowPath)
	}
	behind, err := delegate.Find(o.shadow, strings.Join(dirs[1:], ":"))
	if err != nil {
		return err
	}
	if isGuard(behind) {
		return fmt.Errorf("%s is the guard itself: the plugin must be there", behind)
	}
	b, err := o.guard(filepath.Join(dirs[0], o.shadow), "")
	if err != nil {
		return err
	}
	end := t.putShadow(ctx, b, o.dryRun)
	if status := exitStatusOf(end); status != 0 && status != exitWouldChange {
		return end
	}
	if !o.noProbe && t.unseenBy(ctx, dirs[0], o.shadow) {
		return ends(exitFindings)
	}
	return end
}

func (t *tool) putShadow(ctx context.Context, b binary, dryRun bool) error {
	if dryRun {
		return t.wouldInstall(b, change{})
	}
	steps, err := b.install(ctx)
	if err != nil {
		return err
	}
	return t.showSteps("Install", steps)
}

// unseenBy tells the person of each runtime of this node that would not run a shadow
// in a folder, and what to change. A guard that nobody runs guards nothing, and looks
// as if it did.
func (t *tool) unseenBy(ctx context.Context, early, typ string) (found bool) {
	d := &doctor{tool: t}
	seen := false
	for _, k := range knownRuntimes {
		dirs := d.pluginFolders(ctx, k)
		if dirs == nil {
			continue
		}
		seen = true
		if why := passesOver(dirs, early, typ); why != "" {
			t.warn("%s %s: the guard as %s is not run there. Set %s. Multus has a list of its own", k.name, why, typ, inOrder(k.name, early, dirs))
			found = true
		}
	}
	if !seen {
		t.warn("no runtime is seen here: the one that starts the pods must look for plugins in %s before the folder of %s", early, typ)
	}
	return found
}

// pluginFolders are those of a runtime that is there: somebody listens for it, or its
// configuration says which. nil: it isn't there.
func (d *doctor) pluginFolders(ctx context.Context, k knownRuntime) []string {
	if _, err := os.Stat(d.at(k.socket)); err == nil {
		folders, _ := d.foldersOf(ctx, k)
		return folders.BinDirs
	}
	dirs, _ := d.configured(k.configs, k.bin, nil)
	return dirs
}

// passesOver says why a runtime with these folders of plugins does not run what is
// in early under the name of a plugin, "" if it does.
func passesOver(dirs []string, early, typ string) string {
	list := strings.Join(dirs, ":")
	at := slices.IndexFunc(dirs, func(dir string) bool { return samePath(dir, early) })
	if at < 0 {
		return fmt.Sprintf("looks for plugins in %s, and not in %s", list, early)
	}
	if path, err := delegate.Find(typ, strings.Join(dirs[:at], ":")); err == nil {
		return fmt.Sprintf("looks for plugins in %s, and finds %s first", list, path)
	}
	return ""
}

func samePath(a, b string) bool {
	real := func(path string) string {
		if end, err := filepath.EvalSymlinks(path); err == nil {
			return end
		}
		return filepath.Clean(path)
	}
	return real(a) == real(b)
}

// inOrder says where a runtime's list of folders is set, and the list that it needs.
func inOrder(runtime, early string, dirs []string) string {
	all := []string{early}
	for _, dir := range dirs {
		if !samePath(dir, early) {
			all = append(all, dir)
		}
	}
	list := `["` + strings.Join(all, `", "`) + `"]`
	switch runtime {
	case crio:
		return "in a file of /etc/crio/crio.conf.d: [crio.network] plugin_dirs = " + list + ", and restart CRI-O"
	case "podman":
		return "in /etc/containers/containers.conf: [network] cni_plugin_dirs = " + list
	case "cri-dockerd":
		return "its flag --cni-bin-dir=" + strings.Join(all, ",") + ", and restart it"
	}
	file := "/etc/containerd/config.toml"
	if runtime != "containerd" {
		file = "config-v3.toml.tmpl beside its config.toml"
	}
	return "in " + file + ": [plugins.'io.containerd.cri.v1.runtime'.cni] bin_dirs = " + list +
		", and restart it (containerd 2.1 and later; an older one has room for one folder, and no shadow can come first: take another position)"
}
