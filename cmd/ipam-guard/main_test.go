package main_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ipam-guard/ipam-guard/internal/fakeipam/record"
	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

func TestMain(m *testing.M) {
	// Most of these tests wait for processes that wait: more than one per CPU.
	_ = flag.Set("test.parallel", "8")
	guardtest.Main(m)
}

type (
	Script = guardtest.Script
	Object = guardtest.Object
)

// ask is a call whose delegate follows a script and whose guard has settings.
func ask(script Script, settings Object) guardtest.Opts {
	return guardtest.Opts{Conf: guardtest.Conf{Script: script, Guard: settings}}
}

// bare calls the delegate itself, as if there were no guard.
func bare(n *guardtest.Node, script Script) guardtest.Opts {
	return guardtest.Opts{Binary: n.Bin + "/fake", Conf: guardtest.Conf{Position: guardtest.Bare, Script: script}}
}

// fail is the statement that ends a delegate with exit status 1 and an error.
func fail(code uint, msg string, details ...string) string {
	s := fmt.Sprintf("exit 1 %q %d", msg, code)
	for _, d := range details {
		s += " " + strconv.Quote(d)
	}
	return s
}

func has(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("no %q in %q", p, text)
		}
	}
}

func hasNot(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if strings.Contains(strings.ToLower(text), p) {
			t.Errorf("%q in %q", p, text)
		}
	}
}

// order names the delegate's calls so far: "ADD DEL ADD".
func order(t testing.TB, n *guardtest.Node) string {
	t.Helper()
	var verbs []string
	for _, c := range n.Calls(t) {
		verbs = append(verbs, c.Verb)
	}
	return strings.Join(verbs, " ")
}

func wantCalls(t testing.TB, n *guardtest.Node, want string) {
	t.Helper()
	if have := order(t, n); have != want {
		t.Errorf("the delegate was called for %q, want %q", have, want)
	}
}

// wantLeases fails the test unless just these attachments have an address:
// "c1/eth0".
func wantLeases(t testing.TB, n *guardtest.Node, want ...string) {
	t.Helper()
	var have []string
	for _, owner := range n.Leases(t) {
		have = append(have, owner)
	}
	slices.Sort(have)
	if !slices.Equal(have, want) {
		t.Errorf("addresses of %v, want %v", have, want)
	}
}

// wantFree fails the test unless the lock can be had now.
func wantFree(t testing.TB, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Errorf("%s: %v", path, err)
	}
}

// awaitQueue waits until the guard has the lock file open.
func awaitQueue(t testing.TB, p *guardtest.Proc, path string) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", p.Pid)
	guardtest.Eventually(t, "the guard in the queue", func() bool {
		fds, _ := os.ReadDir(dir)
		return slices.ContainsFunc(fds, func(fd os.DirEntry) bool {
			target, _ := os.Readlink(dir + "/" + fd.Name())
			return target == path
		})
	})
}

// lastLine is the newest line of the guard's log.
func lastLine(t testing.TB, n *guardtest.Node) Object {
	t.Helper()
	lines := n.Log(t)
	if len(lines) == 0 {
		t.Fatal("nothing in the log")
	}
	return lines[len(lines)-1]
}

// warnings are those of a line of the log.
func warnings(line Object) []string {
	list, _ := line["warnings"].([]any)
	var texts []string
	for _, w := range list {
		texts = append(texts, fmt.Sprint(w))
	}
	return texts
}

func inherited(c record.Call) []string {
	var paths []string
	for _, fd := range c.FDs {
		paths = append(paths, fd.Target)
	}
	return paths
}

// copyOf puts a copy of a binary, not a link, into a folder of the node.
func copyOf(t testing.TB, binary, path string) {
	t.Helper()
	data, err := os.ReadFile(binary)
	if err == nil {
		err = os.WriteFile(path, data, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}
