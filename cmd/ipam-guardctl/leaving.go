package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/ipam-guard/ipam-guard/pkg/chain"
	"github.com/ipam-guard/ipam-guard/pkg/conflist"
)

// namesGuard says whether a text that can't be understood may be about the
// guard.
func namesGuard(text []byte) bool { return bytes.Contains(text, []byte(conflist.Guard)) }

func (f folderFile) namesGuard() bool { return namesGuard(f.text) }

// cached is a result that a runtime keeps with the configuration of the ADD. Some
// runtimes (CRI-O, podman) send the DEL with that one.
type cached struct {
	path string
	conf conflist.Conf
}

// cachedResults are those in the CNI library's cache that name the guard.
func cachedResults(dirs []string) ([]cached, error) {
	var found []cached
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			text, err := os.ReadFile(path)
			if err != nil { // a folder, or gone meanwhile
				continue
			}
			var entry struct {
				Config []byte `json:"config"`
			}
			if err := json.Unmarshal(text, &entry); err != nil {
				entry.Config = text
			}
			conf, err := conflist.Read(entry.Config)
			if err == nil && conf.Guarded() || err != nil && namesGuard(entry.Config) {
				found = append(found, cached{path, conf})
			}
		}
	}
	return found, nil
}

// stateDirs are the folders in which records of this node can be: by the node's
// file, and by what configurations say.
func stateDirs(nodeFile string, more []string, confs ...conflist.Conf) []string {
	dirs := slices.Clone(more)
	for _, s := range settingsIn(nodeFile, confs...) {
		dirs = append(dirs, s.StateDir)
	}
	return once(dirs)
}

// once leaves out what came before.
func once(texts []string) []string {
	var out []string
	for _, text := range texts {
		if !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}

// settingsIn are those that calls on this node may go by: of the node's file, and
// of configurations.
func settingsIn(nodeFile string, confs ...conflist.Conf) []chain.Settings {
	all := []chain.Settings{chain.ViewOf("", nodeFile, nil).Settings}
	for _, name := range delegatesOf(nodeFile) {
		all = append(all, chain.ViewOf(name, nodeFile, nil).Settings)
	}
	for _, c := range confs {
		for _, p := range c.Plugins {
			for _, part := range []conflist.Part{p.Part, p.IPAM} {
				if part.Guarded() {
					all = append(all, chain.ViewOf(part.Type, nodeFile, part.Guard.Value("guard")).Settings)
				}
			}
		}
	}
	return all
}

// delegatesOf are those that the node's file has an entry for.
func delegatesOf(nodeFile string) []string {
	text, err := os.ReadFile(nodeFile)
	if err != nil {
		return nil
	}
	top, err := conflist.Parse(text)
	if err != nil {
		return nil
	}
	entries, err := top.Object("delegates")
	if err != nil {
		return nil
	}
	var names []string
	for _, m := range entries.Members {
		names = append(names, m.Name)
	}
	return names
}

// guards are the guard's files in the folders of plugins: by its name, and under
// those of its delegates.
func guards(dirs []string) (own, shadows []string, err error) {
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, err
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			info, err := os.Stat(path)
			if err != nil || !info.Mode().IsRegular() || !isGuard(path) {
				continue
			}
			switch {
			case e.Name() == conflist.Guard:
				own = append(own, path)
			case e.Name()[0] != '.':
				shadows = append(shadows, path)
			}
		}
	}
	return own, shadows, nil
}

func count(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
