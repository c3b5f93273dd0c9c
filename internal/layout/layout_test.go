package layout_test

import (
	"strings"
	"testing"

	"github.com/ipam-guard/ipam-guard/internal/layout"
)

const (
	module = "github.com/ipam-guard/ipam-guard"
	argue  = "if it should be allowed, argue for it in docs/architecture.md and list it in internal/layout/layout_test.go"
)

// allowed is every import between the packages that ship. Calls only go down: from the program to one operation, from
// there to the parts, which know nothing of each other, but that what writes JSON does so by conflist.
func allowed() []layout.Edge {
	return []layout.Edge{
		{From: "cmd/ipam-guard", To: "pkg/chain"},
		{From: "cmd/ipam-guardctl", To: "cmd/ipam-guardctl/internal/audit"},
		{From: "cmd/ipam-guardctl", To: "cmd/ipam-guardctl/internal/cri"},
		{From: "cmd/ipam-guardctl", To: "cmd/ipam-guardctl/internal/inuse"},
		{From: "cmd/ipam-guardctl", To: "cmd/ipam-guardctl/internal/store"},
		{From: "cmd/ipam-guardctl", To: "internal/atomicfile"},
		{From: "cmd/ipam-guardctl", To: "pkg/chain"},
		{From: "cmd/ipam-guardctl", To: "pkg/conflist"},
		{From: "cmd/ipam-guardctl", To: "pkg/delegate"},
		{From: "cmd/ipam-guardctl", To: "pkg/hostlock"},
		{From: "cmd/ipam-guardctl", To: "pkg/journal"},
		{From: "cmd/ipam-guardctl", To: "pkg/policy"},
		{From: "cmd/ipam-guardctl/internal/audit", To: "cmd/ipam-guardctl/internal/store"},
		{From: "cmd/ipam-guardctl/internal/audit", To: "pkg/chain"},
		{From: "cmd/ipam-guardctl/internal/audit", To: "pkg/journal"},
		{From: "pkg/chain", To: "pkg/conflist"},
		{From: "pkg/chain", To: "pkg/delegate"},
		{From: "pkg/chain", To: "pkg/hostlock"},
		{From: "pkg/chain", To: "pkg/journal"},
		{From: "pkg/chain", To: "pkg/policy"},
		{From: "pkg/chain", To: "pkg/telemetry"},
		{From: "pkg/hostlock", To: "pkg/conflist"},
		{From: "pkg/journal", To: "pkg/conflist"},
	}
}

func list(t *testing.T, args ...string) []layout.Package {
	t.Helper()
	pkgs, err := layout.List("../..", args...)
	if err != nil {
		t.Fatal(err)
	}
	if len(pkgs) == 0 {
		t.Fatalf("go list %v found no package, so the check would check nothing", args)
	}
	return pkgs
}

func TestImportsFormTheAllowedDAG(t *testing.T) {
	edges := layout.Edges(module, list(t, "./cmd/...", "./pkg/..."))
	for _, e := range layout.Missing(edges, allowed()) {
		t.Errorf("import not allowed: %s; %s", e, argue)
	}
	for _, e := range layout.Missing(allowed(), edges) {
		t.Errorf("allowed but not there any more: %s; take it off the list, so that it can't come back unseen", e)
	}
}

func TestPluginLinksNothingForbidden(t *testing.T) {
	for _, path := range layout.Linked(list(t, "-deps", "./cmd/ipam-guard"), layout.PluginForbidden()) {
		t.Errorf("the plugin links %s (`go list -deps` finds it); %s", path, argue)
	}
}

func TestPolicyIsPure(t *testing.T) {
	pkgs := list(t, "./pkg/policy/...")
	for _, path := range []string{"os", "syscall", "golang.org/x/sys/unix", "net", "io/fs", "path/filepath"} {
		for _, p := range pkgs {
			if len(layout.Missing([]string{path}, p.Imports)) == 0 {
				t.Errorf("%s imports %s: it decides, and touches neither disk nor system", p.ImportPath, path)
			}
		}
	}
	clock := layout.Names{"time": {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}}
	check(t, pkgs, clock, "policy has no clock: time comes in as a value")
}

func TestOnlyCommandsTouchTheProcess(t *testing.T) {
	check(t, list(t, "./pkg/..."), layout.Names{
		"os": {"Exit", "Args", "Stdin", "Stdout", "Stderr", "Getenv", "LookupEnv", "Environ", "ExpandEnv",
			"Setenv", "Unsetenv", "Clearenv"},
		"syscall":               {"Exit", "Getenv", "Environ", "Stdin", "Stdout", "Stderr"},
		"golang.org/x/sys/unix": {"Exit", "Getenv", "Environ", "Stdin", "Stdout", "Stderr"},
		"fmt":                   {"Print", "Printf", "Println"},
		"log":                   {"*"},
		"flag":                  {"*"},
	}, "only cmd/ reads the environment or stdin, prints, or exits")
}

func check(t *testing.T, pkgs []layout.Package, names layout.Names, why string) {
	t.Helper()
	found, err := layout.PackageMentions(pkgs, names)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range found {
		t.Errorf("%s: %s; %s", strings.TrimPrefix(m, module+"/"), why, argue)
	}
}
