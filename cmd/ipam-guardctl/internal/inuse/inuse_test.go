package inuse_test

import (
	"bufio"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/ipam-guard/ipam-guard/cmd/ipam-guardctl/internal/inuse"
)

func addresses(t *testing.T) map[netip.Addr]string {
	t.Helper()
	found, err := inuse.Addresses()
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// shell runs a script in namespaces of its own until it is ready, and then to its
// end, when it has read something or nothing.
func shell(t *testing.T, namespaces uintptr, script string, args ...string) (pid int, end func()) {
	t.Helper()
	cmd := exec.Command("sh", append([]string{"-c", script, "sh"}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces, Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end = func() { _ = in.Close(); _ = cmd.Wait() }
	t.Cleanup(end)
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatal(line, err)
	}
	return cmd.Process.Pid, end
}

// Ours are found, in a namespace that is closed to nobody.
func TestOwn(t *testing.T) {
	t.Parallel()
	if _, ok := addresses(t)[netip.MustParseAddr("127.0.0.1")]; !ok {
		t.Error("127.0.0.1 is in use nowhere")
	}
}

// A namespace in which no process lives, but that is mounted somewhere, as
// containers' are between their runtime and their first process; seen only from
// another mount namespace than ours.
func TestMountedOnly(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("making network namespaces needs root")
	}
	dir := t.TempDir()
	script := `set -e
mount --make-rprivate /
touch "$1/a b"
unshare -n sh -c 'ip addr add 192.0.2.77/32 dev lo; ip addr add 2001:db8::77/128 dev lo nodad; mount --bind /proc/self/ns/net "$1"' sh "$1/a b"
echo ready
read end`
	_, end := shell(t, syscall.CLONE_NEWNS, script, dir)
	found := addresses(t)
	for _, want := range []string{"192.0.2.77", "2001:db8::77"} {
		if where := found[netip.MustParseAddr(want)]; !strings.HasSuffix(where, "/a b") {
			t.Errorf("%s is at %q", want, where)
		}
	}
	end()
	if _, ok := addresses(t)[netip.MustParseAddr("192.0.2.77")]; ok {
		t.Error("its namespace is gone, and it is still in use")
	}
}

// A namespace that has neither a process nor a name: somebody holds it open. Not
// beside others: a process that they start has for a moment all that we hold open.
func TestHeldOpenOnly(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("making network namespaces needs root")
	}
	pid, end := shell(t, syscall.CLONE_NEWNET, "ip addr add 192.0.2.78/32 dev lo && echo ready && read end")
	netns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	end()
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := addresses(t)[netip.MustParseAddr("192.0.2.78")]; !ok {
		t.Error("its namespace is held open, and it is in use nowhere")
	}
	_ = netns.Close()
	if _, ok := addresses(t)[netip.MustParseAddr("192.0.2.78")]; ok {
		t.Error("its namespace is gone, and it is still in use")
	}
}
