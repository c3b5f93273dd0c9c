// Package guardtest runs the shipped plugin the way a node does: the real
// binary, as a process of its own, in front of a real delegate, the scripted
// one of internal/fakeipam. Each Node is a machine of its own in a temporary
// folder, so tests can run in parallel; what a test leaves running is stopped
// at its end. What the binary should have done is left to the tests.
//
// A package that uses it needs
//
//	func TestMain(m *testing.M) { guardtest.Main(m) }
package guardtest

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

const module = "github.com/ipam-guard/ipam-guard"

// What Build is mostly asked for.
const (
	Guard     = module + "/cmd/ipam-guard"
	Fake      = module + "/internal/fakeipam"
	HostLocal = "github.com/containernetworking/plugins/plugins/ipam/host-local"
	Bridge    = "github.com/containernetworking/plugins/plugins/main/bridge"
)

// nodeFile is what the guard takes for the node's file, in whatever folder it
// is started: each Node starts it in its own.
const nodeFile = "node-config.json"

// binaries are built once per test process, into a folder that Main removes.
var binaries struct {
	sync.Mutex
	dir   string
	built map[string]func() (string, error)
}

// Main runs the tests and then removes what Build made for them.
func Main(m *testing.M) { os.Exit(M{m}.Run()) }

// M is Main for those who must hand over something with a Run, as
// testscript.Main wants it.
type M struct{ *testing.M }

// Run is testing.M's.
func (m M) Run() int {
	dir, err := os.MkdirTemp("", "guardtest-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "guardtest:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	// Whoever runs the tests may have left descriptors open for all its
	// children: no plugin is to find them.
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	binaries.dir, binaries.built = dir, map[string]func() (string, error){}
	return m.M.Run()
}

// Build compiles a package, named by its import path, the way it is shipped,
// once per test process, and returns the binary's path. More flags for the linker
// make another binary of it.
func Build(t testing.TB, pkg string, ldflags ...string) string {
	t.Helper()
	binaries.Lock()
	if binaries.dir == "" {
		binaries.Unlock()
		t.Fatal("this test package needs func TestMain(m *testing.M) { guardtest.Main(m) }")
	}
	key := strings.Join(append([]string{pkg}, ldflags...), " ")
	build, ok := binaries.built[key]
	if !ok {
		dir := filepath.Join(binaries.dir, strconv.Itoa(len(binaries.built)))
		build = sync.OnceValues(func() (string, error) { return compile(dir, pkg, ldflags) })
		binaries.built[key] = build
	}
	binaries.Unlock()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func compile(dir, pkg string, ldflags []string) (string, error) {
	out := filepath.Join(dir, filepath.Base(pkg))
	if _, err := goTool("build", "-buildvcs=false", "-o", out,
		"-ldflags", strings.Join(append(ldflags, "-s -w -X main.nodeFile=/proc/self/cwd/"+nodeFile), " "), pkg); err != nil {
		return "", err
	}
	return out, dependOn(pkg)
}

// dependOn makes the sources that pkg is built from known to `go test`, which
// notes what a test opens: else it would go on answering "(cached)" when the
// binary has changed but the test has not.
func dependOn(pkg string) error {
	dirs, err := goTool("list", "-buildvcs=false", "-deps", "-f", "{{with .Module}}{{if .Main}}{{$.Dir}}{{end}}{{end}}", pkg)
	if err != nil {
		return err
	}
	for dir := range strings.FieldsSeq(dirs) {
		f, err := os.Open(dir)
		if err != nil {
			return err
		}
		_ = f.Close()
	}
	return nil
}

func goTool(args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}
