package layout_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ipam-guard/ipam-guard/internal/layout"
)

// The rules of layout_test.go pass on a healthy tree, so what they rest on is shown here to find what it should.

// tree is a small module whose packages break one rule each.
func tree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":           "module example.test/m\n\ngo 1.26\n",
		"pkg/a/a.go":       "package a\n\nimport _ \"example.test/m/pkg/b\"\n",
		"pkg/a/a_test.go":  "package a_test\n\nimport _ \"example.test/m/pkg/c\"\n",
		"pkg/b/b.go":       "package b\n\nimport (\n\t\"os\"\n\t_ \"os/exec\"\n)\n\nfunc B() { os.Exit(1) }\n",
		"pkg/c/c.go":       "package c\n",
		"pkg/c/other.go":   "//go:build windows\n\npackage c\n\nimport _ \"example.test/m/pkg/a\"\n",
		"pkg/a/testdata/x": "not Go\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestEdgesAreTheImportsOfWhatShips(t *testing.T) {
	pkgs, err := layout.List(tree(t), "./pkg/...")
	if err != nil {
		t.Fatal(err)
	}
	got := layout.Edges("example.test/m", pkgs)
	want := []layout.Edge{{From: "pkg/a", To: "pkg/b"}} // neither the test file's import nor the other platform's
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestLinkedSeesThroughOtherPackages(t *testing.T) {
	pkgs, err := layout.List(tree(t), "-deps", "./pkg/a")
	if err != nil {
		t.Fatal(err)
	}
	if got := layout.Linked(pkgs, layout.PluginForbidden()); !cmp.Equal(got, []string{"os/exec"}) {
		t.Errorf("linked = %q, want os/exec, which a gets by way of b", got)
	}
}

func TestListFailsLoudly(t *testing.T) {
	if _, err := layout.List(tree(t), "./nothing-here"); err == nil {
		t.Error("a pattern that matches nothing gave no error")
	}
}

func TestLinkedPatterns(t *testing.T) {
	pkgs := []layout.Package{
		{ImportPath: "go.uber.org/zap/zapcore"}, {ImportPath: "go.uber.org/zap"},
		{ImportPath: "net/http/internal"}, {ImportPath: "net/httpx"}, {ImportPath: "net"},
	}
	got := layout.Linked(pkgs, []string{"go.uber.org/zap", "net/http/..."})
	if diff := cmp.Diff([]string{"go.uber.org/zap", "net/http/internal"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestMissing(t *testing.T) {
	if got := layout.Missing([]int{1, 2, 3}, []int{3, 1}); !cmp.Equal(got, []int{2}) {
		t.Errorf("missing = %v, want 2", got)
	}
}

func TestMentions(t *testing.T) {
	forbidden := layout.Names{"time": {"Now"}, "os": {"Stdout"}, "log": {"*"}}
	for _, c := range []struct {
		name, src string
		want      []string
	}{
		{"nothing", "import \"time\"\nvar d time.Duration", nil},
		{"called", "import \"time\"\nvar d = time.Now()", []string{"x.go:3: time.Now"}},
		{"handed on", "import \"time\"\nvar now = time.Now", []string{"x.go:3: time.Now"}},
		{"renamed", "import clock \"time\"\nvar d = clock.Now()", []string{"x.go:3: time.Now"}},
		{"dot import", "import . \"time\"\nvar d = Now()", []string{"x.go:2: import . \"time\""}},
		{"harmless dot import", "import . \"math\"\nvar d = Pi", nil},
		{"every name", "import \"log\"\nfunc f() { log.Printf(\"\") }", []string{"x.go:3: log.Printf"}},
		{"deep inside", "import \"os\"\nfunc f() { g(func() any { return &os.Stdout }) }", []string{"x.go:3: os.Stdout"}},
		{"a field of that name", "import \"os\"\nvar _ = os.Args\nfunc f() { c.os.Stdout() }", nil},
		{"same name, other package", "import \"example.test/time\"\nvar d = time.Now()", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := layout.Mentions("x.go", "package x\n"+c.src, forbidden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	if _, err := layout.Mentions("x.go", "not Go", forbidden); err == nil {
		t.Error("a file that does not parse gave no error")
	}
}

func TestPackageMentionsReadsTheFiles(t *testing.T) {
	pkgs, err := layout.List(tree(t), "./pkg/...")
	if err != nil {
		t.Fatal(err)
	}
	got, err := layout.PackageMentions(pkgs, layout.Names{"os": {"Exit"}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"example.test/m/pkg/b/b.go:8: os.Exit"}, got); diff != "" {
		t.Error(diff)
	}
}
