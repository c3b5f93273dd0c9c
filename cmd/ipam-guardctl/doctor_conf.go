package main

import (
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ipam-guard/ipam-guard/pkg/conflist"
)

// lookAtConfigurations says which configuration counts, and finds what validate
// would.
func (d *doctor) lookAtConfigurations(ctx context.Context, p confPlace) {
	f, err := readFolder(p.confDir)
	if errors.Is(err, errNoConf) {
		if len(d.runtimes) > 0 {
			d.find("configuration", err.Error(), "without one the runtime has no network, and no pod starts", "ls -l "+p.confDir)
			return
		}
		d.ok("configuration", "%v", err)
		return
	}
	if err != nil {
		d.unseen("configuration", err)
		return
	}
	o := validateOptions{nodeFile: d.nodeFile, cniPath: p.cniPath(), networks: 1}
	mend := func(finding string) string {
		switch {
		case strings.Contains(finding, ": no "+conflist.Guard+" in "), strings.HasPrefix(finding, "no "+conflist.Guard+" in "):
			return fmt.Sprintf("ipam-guardctl install --cni-path %s %s", p.cniPath(), p.confDir)
		case strings.Contains(finding, d.nodeFile):
			return "${EDITOR:-vi} " + d.nodeFile
		}
		return fmt.Sprintf("ipam-guardctl validate --cni-path %s %s", p.cniPath(), p.confDir)
	}
	for i, file := range f.files {
		fate := f.fate(i)
		d.ok("configuration", "%s, network %s: %s", file.path, orNone(file.conf.Name), fate)
		v := validated{File: file.path, Network: file.conf.Name}
		v.lookAtAll(ctx, file, o)
		for _, text := range v.Findings {
			d.find("configuration", file.path+": "+text, "calls for pods of this network fail, or go by other settings than you think", mend(text))
		}
		if len(v.Guards) > 0 {
			d.guarded = true
		}
		if !strings.HasPrefix(fate, "used") {
			continue
		}
		d.guards = append(d.guards, v.Guards...)
		for _, g := range v.Guards {
			if g.settings.Mode == "bypass" {
				d.find("configuration", fmt.Sprintf("%s, %s: mode is bypass", file.path, g.Plugin),
					"the delegate runs as if the guard weren't there: what it doesn't release is leaked",
					d.editSettings(`take "mode": "bypass" out, here or in the configuration`))
			}
		}
		if len(v.Guards) == 0 && file.edited == nil && having(choose(file.source, ""), actWrap) {
			d.find("configuration", fmt.Sprintf("network %s in %s is not guarded", orNone(file.conf.Name), file.path),
				"the plugin calls its IPAM plugin without the guard", fmt.Sprintf("ipam-guardctl install --cni-path %s %s", p.cniPath(), p.confDir))
		}
	}
	d.lookForMoved(p)
}

// lookForMoved finds configurations with the guard that somebody has put out of
// the way: under a name that no runtime reads.
func (d *doctor) lookForMoved(p confPlace) {
	entries, _ := os.ReadDir(p.confDir) // it was just read
	for _, e := range entries {
		path := filepath.Join(p.confDir, e.Name())
		ext := filepath.Ext(path)
		if !e.Type().IsRegular() || ext == ".conf" || ext == ".conflist" || ext == ".json" {
			continue
		}
		if text, err := os.ReadFile(path); err == nil && namesGuard(text) {
			d.find("installer", path+" names the guard, and no runtime reads it: somebody has moved it away",
				"Cilium does so with the configurations of others (cilium #26760)",
				"mv "+path+" "+strings.TrimSuffix(path, ext)+"   # once that other one is told not to, see docs/operations.md")
		}
	}
}

// lookAtBinaries looks for the guard under its own name and under those of its
// delegates.
func (d *doctor) lookAtBinaries(ctx context.Context, p confPlace) {
	own, shadows, err := guards(p.binDirs)
	if err != nil {
		d.unseen("binary", err)
	}
	all := slices.Concat(own, shadows)
	if len(all) == 0 {
		d.ok("binary", "no ipam-guard in %s", p.cniPath())
	}
	sums := map[string]string{}
	for _, path := range all {
		text, err := os.ReadFile(path)
		if err != nil {
			d.unseen("binary", err)
			continue
		}
		sum := fmt.Sprintf("%x", sha256.Sum256(text))[:12]
		sums[sum] = path
		d.ok("binary", "%s: %s, sha256 %s", path, built(ctx, path), sum)
		if err := probe(ctx, path, ""); err != nil {
			d.find("binary", err.Error(), "every call fails", d.install(path, p))
		}
	}
	if len(sums) > 1 {
		d.find("binary", "guards that differ: "+joined(all), "what a call does depends on the name that it comes by",
			d.install(all[0], p)+"   # and each under an IPAM plugin's name with --shadow")
	}
	for _, dir := range p.binDirs {
		var st unix.Statfs_t
		if unix.Statfs(dir, &st) == nil && st.Flags&unix.ST_NOEXEC != 0 {
			d.find("binary", dir+" is on a file system mounted noexec", "no plugin in it can be run",
				"mount -o remount,exec "+mountOf(dir))
		}
	}
}

func (d *doctor) install(path string, p confPlace) string {
	return fmt.Sprintf("ipam-guardctl install --cni-path %s %s", filepath.Dir(path), p.confDir)
}

// built says what a guard was built from: its version it tells itself, to who
// runs it by hand.
func built(ctx context.Context, path string) string {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path)
	cmd.Env = []string{} // of a runtime there is nothing
	said, _ := cmd.CombinedOutput()
	version, _, _ := strings.Cut(strings.TrimPrefix(string(said), conflist.Guard+" "), ":")
	if len(said) == 0 || strings.ContainsAny(version, " \n") {
		version = info.Main.Version
	}
	return fmt.Sprintf("%s, %s", orNone(version), info.GoVersion)
}

// mountOf is the mount point that a path is below.
func mountOf(path string) string {
	for path = existing(path); path != "/" && sameMount(path, filepath.Dir(path)); {
		path = filepath.Dir(path)
	}
	return path
}

// sameMount goes by the device, too: a bind mount has that of what it shows, and
// kernels before 5.8 don't say which mount a file is on.
func sameMount(a, b string) bool {
	var x, y unix.Statx_t
	for path, st := range map[string]*unix.Statx_t{a: &x, b: &y} {
		if unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_MNT_ID, st) != nil {
			return false
		}
	}
	return x.Mnt_id == y.Mnt_id && x.Dev_major == y.Dev_major && x.Dev_minor == y.Dev_minor
}

// existing is a path, or the folder above it that is there.
func existing(path string) string {
	for path != "/" && path != "." {
		if _, err := os.Stat(path); err == nil {
			return path
		}
		path = filepath.Dir(path)
	}
	return path
}
