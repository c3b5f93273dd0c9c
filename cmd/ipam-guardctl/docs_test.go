package main_test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// Every command of this tool in the documents is there, with all its flags.
func TestDocumentedCommands(t *testing.T) {
	t.Parallel()
	ctl := guardtest.Build(t, ctlPackage)
	docs, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(docs) == 0 {
		t.Fatal(docs, err)
	}
	help := map[string]string{}
	command := regexp.MustCompile(`ipam-guardctl ([a-z]+)([^|#\n` + "`" + `]*)`)
	flag := regexp.MustCompile(` (--[a-z-]+)`)
	found := map[string]int{}
	for _, path := range append(docs, "../../README.md") {
		for _, m := range command.FindAllStringSubmatch(read(t, path), -1) {
			name := m[1]
			if help[name] == "" {
				out, _ := exec.Command(ctl, name, "--help").CombinedOutput()
				help[name] = string(out)
			}
			if !strings.Contains(help[name], "\n  ipam-guardctl "+name) {
				t.Errorf("%s: %q: there is no such command", path, m[0])
				continue
			}
			for _, f := range flag.FindAllStringSubmatch(m[2], -1) {
				if !regexp.MustCompile(`(?m)^ .*` + f[1] + `\b`).MatchString(help[name]) {
					t.Errorf("%s: %q: %s has no %s", path, m[0], name, f[1])
				}
			}
			found[filepath.Base(path)]++
		}
	}
	if found["operations.md"] < 20 || found["guardctl.md"] < 5 {
		t.Errorf("only these were found: %v", found)
	}
}
