package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
)

// fatal are the system calls before which the tool is killed: those that change
// files or start programs.
var fatal = []string{"write", "fsync", "fchmod", "renameat", "unlinkat", "flock", "linkat", "symlinkat", "execve", "clone", "clone3"}

// every says how many of the kills are tried: all of them take more than a minute.
func every(t *testing.T) int {
	t.Helper()
	text := os.Getenv("CRASH_EVERY")
	if text == "" {
		return 5
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("CRASH_EVERY=%s: want 1 for every kill, 3 for a third of them", text)
	}
	return n
}

// Killed before any of these calls, its N-th in a thread for every N: the node's
// network works, and the same command again finishes the job. CRASH_EVERY=1 for
// every N.
func TestKilledAtAnyStep(t *testing.T) {
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("strace isn't here, which kills at a chosen system call")
	}
	for _, tt := range []struct {
		name    string
		prepare func(t *testing.T, n node)
		args    func(n node) []string
		guarded bool // in the end
	}{
		{"install", func(*testing.T, node) {}, installArgs, true},
		{"wrap", withBinary, func(n node) []string { return []string{"wrap", "--cni-path", n.path("cni"), n.path("net.d")} }, true},
		{"unwrap", guardedNode, func(n node) []string { return []string{"unwrap", n.path("net.d")} }, false},
		{"uninstall", owing, uninstallArgs, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			killed := 0
			for i, call := range fatal {
				for at := 1 + i%every(t); ; at += every(t) {
					when := fmt.Sprintf("%s, killed before %s %d", tt.name, call, at)
					n := newNode(t)
					n.write(t, "net.d/10-pods.conflist", podsConf)
					tt.prepare(t, n)
					if !n.killedAt(t, call, at, tt.args(n)) {
						break
					}
					killed++
					n.works(t, when)
					n.ok(t, tt.args(n)...)
					n.finished(t, when, tt.guarded)
					if t.Failed() || at > 100 {
						t.Fatalf("stopped: %s", when)
					}
				}
			}
			if killed < 12/every(t) {
				t.Errorf("only %d kills: the calls that were meant are not made any more", killed)
			}
			t.Logf("%s: %d kills", tt.name, killed)
		})
	}
}

func installArgs(n node) []string {
	return []string{"install", "--cni-path", n.path("cni"), n.path("net.d")}
}

func uninstallArgs(n node) []string {
	return []string{"uninstall", "--cni-path", n.path("cni"), "--cache-dir", n.path("results"), n.path("net.d")}
}

func withBinary(t *testing.T, n node) {
	t.Helper()
	guardedNode(t, n)
	n.ok(t, "unwrap", n.path("net.d"))
}

func guardedNode(t *testing.T, n node) {
	t.Helper()
	n.ok(t, installArgs(n)...)
}

// owing is a guarded node with a release that is pending.
func owing(t *testing.T, n node) {
	t.Helper()
	guardedNode(t, n)
	n.plugin(t, "ADD", "owed", "/proc/self/ns/net", true)
	n.write(t, "fake/script.json", `{"DEL": "exit 1 \"away\" 100"}`)
	n.plugin(t, "DEL", "owed", "", false)
	n.write(t, "fake/script.json", `{"DEL": "free"}`)
}

// killedAt runs the tool and kills the process, it or a child of it, of which a
// thread makes that call for the at-th time. It reports whether that was so.
func (n node) killedAt(t *testing.T, call string, at int, args []string) bool {
	t.Helper()
	cmd := exec.Command("strace", append([]string{
		"-f", "-qq", "-o", "/dev/null", "-e", "trace=" + call,
		"-e", fmt.Sprintf("inject=%s:signal=SIGKILL:when=%d", call, at), n.path("tool", "ipam-guardctl"),
	}, args...)...)
	cmd.Dir = n.dir
	cmd.Env = []string{"FAKEIPAM_DIR=" + n.path("fake"), "GOMAXPROCS=1"}
	out, err := cmd.CombinedOutput()
	if err == nil {
		return false
	}
	if strings.Contains(string(out), "ptrace") && strings.Contains(string(out), "not permitted") {
		t.Skipf("ptrace is refused here: %s", out)
	}
	return true
}

// works: the folder holds one configuration that a runtime can use, every plugin
// that it names is there, and a pod comes and goes.
func (n node) works(t *testing.T, when string) {
	t.Helper()
	files, err := libcni.ConfFiles(n.path("net.d"), []string{".conf", ".conflist", ".json"})
	if err != nil || !slices.Equal(files, []string{n.path("net.d", "10-pods.conflist")}) {
		t.Fatalf("%s: the folder has %v, %v", when, files, err)
	}
	list, err := libcni.NetworkConfFromFile(files[0])
	if err != nil || list.Name != "pods" {
		t.Fatalf("%s: %v\n%s", when, err, read(t, files[0]))
	}
	n.plugin(t, "ADD", "pod", "/proc/self/ns/net", true)
	n.plugin(t, "DEL", "pod", "", true)
}

// plugin calls the IPAM plugin of the configuration as its main plugin would.
func (n node) plugin(t *testing.T, verb, container, netns string, well bool) {
	t.Helper()
	list, err := libcni.NetworkConfFromFile(n.path("net.d", "10-pods.conflist"))
	if err != nil {
		t.Fatal(err)
	}
	conf, err := libcni.InjectConf(list.Plugins[0], map[string]any{"name": list.Name, "cniVersion": list.CNIVersion})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(n.path("cni", conf.Network.IPAM.Type))
	cmd.Dir, cmd.Stdin = n.dir, strings.NewReader(string(conf.Bytes))
	cmd.Env = []string{
		"CNI_COMMAND=" + verb, "CNI_CONTAINERID=" + container, "CNI_IFNAME=eth0", "CNI_NETNS=" + netns,
		"CNI_PATH=" + n.path("cni"), "FAKEIPAM_DIR=" + n.path("fake"), "CNI_NETNS_OVERRIDE=1",
	}
	if out, err := cmd.CombinedOutput(); (err == nil) != well {
		t.Fatalf("%s of %s through %s: %v\n%s", verb, container, conf.Network.IPAM.Type, err, out)
	}
}

// finished: all is as after a command that nobody killed.
func (n node) finished(t *testing.T, when string, guarded bool) {
	t.Helper()
	text := read(t, n.path("net.d", "10-pods.conflist"))
	if strings.Contains(text, "ipam-guard") != guarded || !guarded && text != podsConf {
		t.Errorf("%s and given again:\n%s", when, text)
	}
	for _, dir := range []string{"net.d", "cni"} {
		left, err := filepath.Glob(n.path(dir, ".*"))
		if err != nil || len(left) > 0 {
			t.Errorf("%s and given again: left %v, %v", when, left, err)
		}
	}
	if strings.HasPrefix(when, "uninstall") {
		_, err := os.Lstat(n.path("cni", "ipam-guard"))
		leases, _ := os.ReadDir(n.path("fake", "leases"))
		if err == nil || len(leases) > 0 {
			t.Errorf("%s and given again: binary %v, %d leases", when, err, len(leases))
		}
	}
	n.works(t, when+" and given again")
}

// Two at the same time, and somebody else who writes the file: wrapped once, and
// nobody's change is lost.
func TestTogether(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	file := n.write(t, "net.d/10-pods.conflist", podsConf)
	out := make(chan string)
	for range 4 {
		go func() {
			text, status := n.tool(t, nil, "wrap", "--no-probe", n.path("net.d"))
			out <- fmt.Sprint(status, text)
		}()
	}
	for range 4 {
		if text := <-out; !strings.HasPrefix(text, "0") {
			t.Error(text)
		}
	}
	if text := read(t, file); strings.Count(text, "ipam-guard") != 1 {
		t.Errorf("%s", text)
	}
	n.ok(t, "unwrap", file)
	if read(t, file) != podsConf {
		t.Error("not the original")
	}
}

// A write is synced: the new content before it takes its name, the folder after.
func TestSynced(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("strace isn't here, which shows the system calls")
	}
	n := newNode(t)
	file := n.write(t, "net.d/10-pods.conflist", podsConf)
	trace := n.path("trace")
	cmd := exec.Command("strace", "-f", "-y", "-qq", "-o", trace, "-e", "trace=fsync,renameat", n.path("tool", "ipam-guardctl"), "wrap", "--no-probe", file)
	cmd.Dir = n.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		if strings.Contains(string(out), "ptrace") {
			t.Skipf("ptrace is refused here: %s", out)
		}
		t.Fatalf("%v\n%s", err, out)
	}
	want := []string{"fsync(", ".10-pods.conflist.ipam-guardctl>", "renameat(", "fsync(", "net.d>"}
	rest := read(t, trace)
	for _, part := range want {
		_, after, ok := strings.Cut(rest, part)
		if !ok {
			t.Fatalf("no %s after the ones before it, want %v in\n%s", part, want, read(t, trace))
		}
		rest = after
	}
}
