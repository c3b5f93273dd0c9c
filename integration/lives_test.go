//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
	"github.com/ipam-guard/ipam-guard/pkg/journal"
)

// sleeper is a process in a network namespace: a new one, or that of a path.
func sleeper(t *testing.T, netns string) (path string, end func()) {
	t.Helper()
	cmd := exec.Command("sleep", "infinity")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: syscall.CLONE_NEWNET}
	if netns != "" {
		cmd = exec.Command("nsenter", "--net="+netns, "sleep", "infinity")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end = func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	t.Cleanup(end)
	return fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid), end
}

// The path of an attachment's namespace is gone for ten minutes, since the
// process is that it went by, but another one lives on in there and has the
// address. It is released when that is gone, too.
func TestSomebodyLivesOn(t *testing.T) {
	if up := journal.Uptime(); up < 11*60*1000 {
		t.Skipf("this machine is up for %d s: nothing can be gone for ten minutes", up/1000)
	}
	for family, subnet := range map[string]string{"IPv4": "10.99.0.0/24", "IPv6": "fd00:99::/64"} {
		t.Run(family, func(t *testing.T) {
			n := newNetwork(t)
			list := n.conflist(t, conf{Version: "1.1.0", Name: "pods", Delegate: object{"ranges": [][]object{{{"subnet": subnet}}}}})
			path, end := sleeper(t, "")
			other, endOther := sleeper(t, path)
			guardtest.Eventually(t, "a second process in there", func() bool {
				a, errA := os.Stat(path)
				b, errB := os.Stat(other)
				return errA == nil && errB == nil && os.SameFile(a, b)
			})
			rt := &libcni.RuntimeConf{ContainerID: "one", IfName: "eth0", NetNS: path}
			if _, err := n.cni.AddNetworkList(context.Background(), list, rt); err != nil {
				t.Fatal(err)
			}
			end()
			n.comesAndGoes(t, list, "first") // and notes that the path is gone
			n.tenMinutesOn(t)
			n.comesAndGoes(t, list, "second")
			if have := values(n.reserved(t, "pods")); len(have) != 1 || have[0] != "one/eth0" {
				t.Errorf("somebody lives in its namespace with the address, reserved is %v", have)
			}
			endOther()
			n.comesAndGoes(t, list, "third")
			if have := n.reserved(t, "pods"); len(have) != 0 {
				t.Errorf("nobody lives in its namespace, reserved is %v", have)
			}
		})
	}
}

// comesAndGoes is a pod of a network.
func (n *network) comesAndGoes(t *testing.T, list *libcni.NetworkConfigList, id string) {
	t.Helper()
	rt := n.container(t, id, "eth0")
	_, err := n.cni.AddNetworkList(context.Background(), list, rt)
	if err == nil {
		err = n.cni.DelNetworkList(context.Background(), list, rt)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// tenMinutesOn sets back since when the namespace of the one record is gone.
func (n *network) tenMinutesOn(t *testing.T) {
	t.Helper()
	j := &journal.Journal{Dir: n.StateDir, Node: journal.Here()}
	e := j.Try(journal.Key{Network: "pods", Container: "one", IfName: "eth0", Delegate: "host-local"})
	if e == nil || e.GoneSince == 0 {
		t.Fatal("no record that says since when its namespace is gone")
	}
	defer e.Close()
	if err := e.Update(func(r *journal.Record) { r.GoneSince = 1 }); err != nil {
		t.Fatal(err)
	}
}
