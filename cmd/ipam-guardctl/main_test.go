package main_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

func TestMain(m *testing.M) { guardtest.Main(m) }

const ctlPackage = "github.com/ipam-guard/ipam-guard/cmd/ipam-guardctl"

// What a person sees: testdata/script. Each script has a node of its own: plugins
// in cni, the guard to be installed beside the tool in tool, settings in
// node-config.json.
func TestScript(t *testing.T) {
	t.Parallel()
	ctl, guard, fake := guardtest.Build(t, ctlPackage), guardtest.Build(t, guardtest.Guard), guardtest.Build(t, guardtest.Fake)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			n := node{env.WorkDir}
			env.Setenv("PATH", n.path("tool")+":"+env.Getenv("PATH"))
			env.Setenv("FAKEIPAM_DIR", n.path("fake"))
			return n.make(ctl, guard, fake)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": status, "cni": callPlugin, "schema": schema},
	})
}

// node is a machine in a folder.
type node struct{ dir string }

func (n node) path(parts ...string) string {
	return filepath.Join(append([]string{n.dir}, parts...)...)
}

// make puts the binaries where they belong, as files of their own: whoever
// replaces one must not replace another node's.
func (n node) make(ctl, guard, fake string) error {
	settings := fmt.Sprintf(`{"defaults": {"lockDir": %q, "stateDir": %q, "log": {"file": %q}},
		"delegates": {"host-local": {"timeout": {"check": "7s"}}}}`,
		n.path("lock"), n.path("state"), n.path("log"))
	if err := os.WriteFile(n.path("node-config.json"), []byte(settings), 0o600); err != nil {
		return err
	}
	for _, dir := range []string{"tool", "cni", "early", "fake"} {
		if err := os.Mkdir(n.path(dir), 0o755); err != nil {
			return err
		}
	}
	links := map[string]string{n.path("tool", "ipam-guardctl"): ctl, n.path("tool", "ipam-guard"): guard}
	for _, name := range []string{"host-local", "whereabouts", "bridge", "macvlan", "calico", "calico-ipam", "portmap"} {
		links[n.path("cni", name)] = fake
	}
	for to, from := range links {
		if err := os.Link(from, to); err != nil {
			return err
		}
	}
	return nil
}

// status runs the tool and wants it to end with an exit status: status 3 plan x.
func status(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N COMMAND...")
	}
	err := ts.Exec("ipam-guardctl", args[1:]...)
	have := "0"
	if err != nil {
		_, have, _ = strings.Cut(err.Error(), "exit status ")
	}
	if have != args[0] {
		ts.Fatalf("ipam-guardctl %s: exit status %s (%v), want %s", strings.Join(args[1:], " "), have, err, args[0])
	}
}

// callPlugin calls a plugin as a runtime does: cni VERB CONTAINER PLUGIN CONF.
func callPlugin(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 4 {
		ts.Fatalf("usage: cni VERB CONTAINER PLUGIN CONF")
	}
	n := node{ts.Getenv("WORK")}
	netns := "/proc/self/ns/net"
	if ts.Getenv("NETNS") == "gone" {
		netns = ""
	}
	cmd := exec.Command(ts.MkAbs(args[2]))
	cmd.Dir = n.dir
	cmd.Stdin = strings.NewReader(ts.ReadFile(args[3]))
	cmd.Env = []string{
		"CNI_COMMAND=" + args[0], "CNI_CONTAINERID=" + args[1], "CNI_IFNAME=eth0", "CNI_NETNS=" + netns,
		"CNI_PATH=" + n.path("early") + ":" + n.path("cni"), "FAKEIPAM_DIR=" + n.path("fake"), "CNI_NETNS_OVERRIDE=1",
	}
	out, err := cmd.CombinedOutput()
	if (err != nil) != neg {
		ts.Fatalf("%s of %s: %v\n%s", args[0], args[1], err, out)
	}
}

// tool runs the tool on a node.
func (n node) tool(t testing.TB, cred *syscall.Credential, args ...string) (out string, status int) {
	t.Helper()
	cmd := exec.Command(n.path("tool", "ipam-guardctl"), args...)
	cmd.Dir = n.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "FAKEIPAM_DIR=" + n.path("fake"), "HOME=/nonexistent"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return text.String(), cmd.ProcessState.ExitCode()
}

func (n node) ok(t testing.TB, args ...string) string {
	t.Helper()
	out, status := n.tool(t, nil, args...)
	if status != 0 {
		t.Fatalf("ipam-guardctl %s: exit status %d\n%s", strings.Join(args, " "), status, out)
	}
	return out
}

func newNode(t testing.TB) node {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	n := node{dir}
	if err := n.make(guardtest.Build(t, ctlPackage), guardtest.Build(t, guardtest.Guard), guardtest.Build(t, guardtest.Fake)); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n node) write(t testing.TB, name, text string) string {
	t.Helper()
	path := n.path(name)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
