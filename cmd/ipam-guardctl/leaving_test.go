package main_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// Nobody calls the guard any more after its configuration is gone: uninstall
// itself notes since when a network namespace is gone, and releases what is left
// ten minutes later. A dry run notes nothing.
func TestUninstallOfGoneAttachments(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(t, "net.d/10-pods.conflist", podsConf)
	guardedNode(t, n)
	netns := n.write(t, "netns", "")
	n.plugin(t, "ADD", "pod", netns, true)
	if err := os.Remove(netns); err != nil {
		t.Fatal(err)
	}
	record := theRecord(t, n)
	before := read(t, record)
	out, status := n.tool(t, nil, append(uninstallArgs(n), "--dry-run")...)
	if status != 4 || read(t, record) != before {
		t.Errorf("dry run: exit status %d, record changed %v\n%s", status, read(t, record) != before, out)
	}
	out, status = n.tool(t, nil, uninstallArgs(n)...)
	if status != 5 || !strings.Contains(out, "its network namespace is gone: may be released in 10m0s") {
		t.Errorf("exit status %d\n%s", status, out)
	}
	aged := regexp.MustCompile(`"goneSince":[1-9]\d*`)
	if !aged.MatchString(read(t, record)) {
		t.Fatalf("not noted: %s", read(t, record))
	}
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil || ts.Sec < 11*60 {
		t.Skipf("this machine is up for %d s: nothing can be gone for ten minutes (%v)", ts.Sec, err)
	}
	if err := os.WriteFile(record, []byte(aged.ReplaceAllString(read(t, record), `"goneSince":1`)), 0o600); err != nil {
		t.Fatal(err)
	}
	n.ok(t, uninstallArgs(n)...)
	if left, _ := os.ReadDir(n.path("fake", "leases")); len(left) > 0 {
		t.Errorf("leases are left: %v", left)
	}
}

func theRecord(t *testing.T, n node) string {
	t.Helper()
	files, err := filepath.Glob(n.path("state", "records", "*", "*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	return files[0]
}

// A record that can't be read holds the binary until it is given up; one that
// another process has, too.
func TestUninstallOfUnreadableAndBusy(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(t, "net.d/10-pods.conflist", podsConf)
	guardedNode(t, n)
	n.plugin(t, "ADD", "pod", "/proc/self/ns/net", true)
	record := theRecord(t, n)
	text := read(t, record)

	f, err := os.Open(record)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	out, status := n.tool(t, nil, append(uninstallArgs(n), "--abandon")...)
	if status != 5 || !strings.Contains(out, "another process is at work on it") {
		t.Errorf("busy: exit status %d\n%s", status, out)
	}
	_ = f.Close()

	if err := os.WriteFile(record, []byte(strings.Replace(text, `"version":1`, `"version":99`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	out, status = n.tool(t, nil, uninstallArgs(n)...)
	if status != 5 || !strings.Contains(out, "or is of a newer version: would be abandoned") {
		t.Errorf("newer: exit status %d\n%s", status, out)
	}
	out = n.ok(t, append(uninstallArgs(n), "--abandon")...)
	if !strings.Contains(out, "abandoned where it is") || read(t, record) == "" {
		t.Errorf("%s", out)
	}
}

// Case 55: a shadow is not taken away while something is owed by it.
func TestShadowThatOwes(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	path := n.path("early") + ":" + n.path("cni")
	n.write(t, "net.d/10-pods.conflist", strings.Replace(podsConf, `"host-local"`, `"whereabouts"`, 1))
	n.ok(t, "install", "--no-probe", "--shadow", "whereabouts", "--cni-path", path)
	leave := []string{"uninstall", "--cni-path", path, "--cache-dir", n.path("results"), n.path("net.d")}

	conf := n.write(t, "on-stdin.json", `{"cniVersion": "1.0.0", "name": "pods", "type": "bridge", "ipam": {"type": "whereabouts"}}`)
	n.shadowed(t, "ADD", conf, true)
	n.write(t, "fake/script.json", `{"DEL": "exit 1 \"away\" 100"}`)
	n.shadowed(t, "DEL", conf, false)
	out, status := n.tool(t, nil, leave...)
	if status != 5 || !strings.Contains(out, "early/whereabouts") || !strings.Contains(out, "owed by it") || !guardThere(n) {
		t.Errorf("owing: exit status %d, there %v\n%s", status, guardThere(n), out)
	}
	// whereabouts says nothing by its exit status: its log line is what counts.
	n.write(t, "fake/script.json", `{"DEL": "free; stderr \"2026-12-02T00:00:00Z [debug] IPManagement: [], <nil>\\n\""}`)
	n.ok(t, leave...)
	if left, _ := os.ReadDir(n.path("fake", "leases")); len(left) > 0 || guardThere(n) {
		t.Errorf("leases %v, shadow there %v", left, guardThere(n))
	}
}

func guardThere(n node) bool {
	_, err := os.Lstat(n.path("early", "whereabouts"))
	return err == nil
}

// shadowed calls the shadow as a main plugin would, for a pod whose network
// namespace is gone at its DEL.
func (n node) shadowed(t *testing.T, verb, conf string, well bool) {
	t.Helper()
	netns := "/proc/self/ns/net"
	if verb == "DEL" {
		netns = ""
	}
	g := &guardtest.Node{Dir: n.dir, Bin: n.path("cni"), FakeDir: n.path("fake")}
	r := g.Run(t, verb, "pod", guardtest.Opts{
		Binary: n.path("early", "whereabouts"), Stdin: []byte(read(t, conf)), Path: n.path("early") + ":" + n.path("cni"),
		Netns: "/proc/self/ns/net", Env: []string{"CNI_NETNS=" + netns},
	})
	if (r.RC == 0) != well {
		t.Fatalf("%s through the shadow: %+v", verb, r)
	}
}
