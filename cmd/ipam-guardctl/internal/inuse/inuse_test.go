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
	cmd := exec.Command("sh", "-c", script, "sh", dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
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
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatal(line, err)
	}
	found := addresses(t)
	for _, want := range []string{"192.0.2.77", "2001:db8::77"} {
		if where := found[netip.MustParseAddr(want)]; !strings.HasSuffix(where, "/a b") {
			t.Errorf("%s is at %q", want, where)
		}
	}
	_ = in.Close()
	_ = cmd.Wait()
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
	cmd := exec.Command("sh", "-c", "ip addr add 192.0.2.78/32 dev lo && echo && read end")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
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
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	netns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid))
	_ = in.Close()
	_ = cmd.Wait()
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
