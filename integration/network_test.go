//go:build integration

package integration_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// network is a machine with a network namespace of its own, in which bridge
// works, and libcni as its runtime.
type network struct {
	*machine
	netns ns.NetNS
	cni   *libcni.CNIConfig
}

func newNetwork(t testing.TB) *network {
	t.Helper()
	n := &network{machine: newMachine(t), netns: newNetns(t)}
	n.Install(t, guardtest.Build(t, guardtest.Bridge), "bin", "bridge")
	n.cni = libcni.NewCNIConfigWithCacheDir([]string{n.Bin}, n.cacheDir(), &inside{&invoke.DefaultExec{RawExec: &invoke.RawExec{}}, n.netns})
	return n
}

func (n *network) cacheDir() string { return filepath.Join(n.Dir, "cache") }

// newNetns makes a namespace that a descriptor of ours keeps, and nothing else.
func newNetns(t testing.TB) ns.NetNS {
	t.Helper()
	netns, err := ns.TempNetNS()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netns.Close() })
	return netns
}

// inside runs plugins in a network namespace.
type inside struct {
	*invoke.DefaultExec
	netns ns.NetNS
}

func (e *inside) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) (out []byte, err error) {
	doErr := e.netns.Do(func(ns.NetNS) error {
		out, err = e.DefaultExec.ExecPlugin(ctx, path, stdin, environ)
		return nil
	})
	if doErr != nil {
		return nil, doErr
	}
	return out, err
}

// conflist is bridge's, with the guard or, in position Bare, without it.
func (n *network) conflist(t testing.TB, c conf) *libcni.NetworkConfigList {
	t.Helper()
	c.Top = object{"type": "bridge", "bridge": "br0", "ipMasq": false, "isGateway": false}
	var plugin object
	if err := json.Unmarshal(n.Netconf(n.conf(c)), &plugin); err != nil {
		t.Fatal(err)
	}
	text := mustJSON(t, object{"cniVersion": plugin["cniVersion"], "name": plugin["name"], "plugins": []object{plugin}})
	list, err := libcni.ConfListFromBytes(text)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// container is an attachment of a container with a namespace of its own.
func (n *network) container(t testing.TB, id, ifname string) *libcni.RuntimeConf {
	t.Helper()
	return attachment(newNetns(t), id, ifname)
}

func attachment(netns ns.NetNS, id, ifname string) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{ContainerID: id, IfName: ifname, NetNS: fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), netns.Fd())}
}

// cached is the result that libcni keeps of an ADD, byte for byte.
func (n *network) cached(t testing.TB, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf) []byte {
	t.Helper()
	path := filepath.Join(n.cacheDir(), "results", strings.Join([]string{list.Name, rt.ContainerID, rt.IfName}, "-"))
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var entry struct {
		Result json.RawMessage `json:"result"`
	}
	if err := json.Unmarshal(text, &entry); err != nil {
		t.Fatal(err)
	}
	return entry.Result
}

// addresses are the IPv4 addresses of a container's interface as the kernel
// has them; none without the interface.
func addresses(t testing.TB, rt *libcni.RuntimeConf) []string {
	t.Helper()
	var have []string
	err := ns.WithNetNSPath(rt.NetNS, func(ns.NetNS) error {
		links, err := netlink.LinkList()
		if err != nil {
			return err
		}
		for _, l := range links {
			if l.Attrs().Name != rt.IfName {
				continue
			}
			addrs, err := netlink.AddrList(l, netlink.FAMILY_V4)
			if err != nil {
				return err
			}
			for _, a := range addrs {
				have = append(have, a.IPNet.String())
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return have
}
