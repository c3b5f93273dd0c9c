// Package layout checks what the project's packages import and mention, so that the shape described in
// docs/architecture.md holds by test and not by memory.
//
// It promises to look at the source as the go command sees it (non-test files, this platform) and to name the edge,
// package or line that breaks a rule. Which edges, packages and names are allowed is for its callers to say.
package layout

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A Package is the part of `go list -json` that the checks need.
type Package struct {
	ImportPath string
	Dir        string
	GoFiles    []string // without test files
	Imports    []string // direct, without those of test files
}

// Files returns the paths of the package's non-test files.
func (p Package) Files() []string {
	files := make([]string, 0, len(p.GoFiles))
	for _, f := range p.GoFiles {
		files = append(files, filepath.Join(p.Dir, f))
	}
	return files
}

// List runs `go list` in dir. The arguments are patterns, or flags followed by patterns: "-deps" gives all that the
// linker is handed for them.
func List(dir string, args ...string) ([]Package, error) {
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Dir,GoFiles,Imports"}, args...)...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return decode(bytes.NewReader(out))
}

// decode reads the concatenated objects that `go list -json` prints.
func decode(r io.Reader) ([]Package, error) {
	var pkgs []Package
	for dec := json.NewDecoder(r); ; {
		var p Package
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs, nil
		} else if err != nil {
			return nil, fmt.Errorf("reading what go list printed: %w", err)
		}
		pkgs = append(pkgs, p)
	}
}

// An Edge is one direct import between two packages of the module, both without the module's path.
type Edge struct{ From, To string }

func (e Edge) String() string { return e.From + " -> " + e.To }

// Edges returns the imports that stay inside the module, sorted.
func Edges(module string, pkgs []Package) []Edge {
	var edges []Edge
	for _, p := range pkgs {
		for _, path := range p.Imports {
			if to, ours := strings.CutPrefix(path, module+"/"); ours {
				edges = append(edges, Edge{strings.TrimPrefix(p.ImportPath, module+"/"), to})
			}
		}
	}
	slices.SortFunc(edges, func(a, b Edge) int { return strings.Compare(a.String(), b.String()) })
	return edges
}

// Missing returns what is in list and not in from.
func Missing[T comparable](list, from []T) []T {
	var out []T
	for _, x := range list {
		if !slices.Contains(from, x) {
			out = append(out, x)
		}
	}
	return out
}

// Linked returns those of the forbidden packages that are among pkgs. An entry that ends in "/..." stands for the
// package and for everything below it.
func Linked(pkgs []Package, forbidden []string) []string {
	var linked []string
	for _, p := range pkgs {
		if slices.ContainsFunc(forbidden, func(f string) bool { return covers(f, p.ImportPath) }) {
			linked = append(linked, p.ImportPath)
		}
	}
	return linked
}

func covers(pattern, path string) bool {
	tree, below := strings.CutSuffix(pattern, "/...")
	return path == tree || below && strings.HasPrefix(path, tree+"/")
}

// PluginForbidden lists what the plugin must not link. It runs twice per pod, and pays at each start for what its
// packages set up; os/exec and the library's invoke package also wait in ways that the plugin must not (for the end of
// a pipe that a grandchild may hold open).
func PluginForbidden() []string {
	return []string{
		"crypto/tls",
		"html/template",
		"log",
		"log/slog",
		"net/http/...",
		"os/exec",
		"text/template",
		"github.com/containernetworking/cni/libcni",
		"github.com/containernetworking/cni/pkg/invoke",
		"github.com/prometheus/...",
		"github.com/spf13/cobra",
		"go.opentelemetry.io/...",
		"go.uber.org/zap", // its root package; zapcore below it is what the plugin uses
		"google.golang.org/grpc/...",
	}
}
