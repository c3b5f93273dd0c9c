package main

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"github.com/ipam-guard/ipam-guard/pkg/journal"
)

// node is the machine that the demo plays: a folder, and with root a network
// namespace of its own in which bridge works.
type node struct {
	dir     string
	pods    []pod
	why     string   // why there is no bridge; "" if there is one
	netns   ns.NetNS // nil without bridge
	runtime *libcni.CNIConfig
}

// pod is a container of that machine.
type pod struct {
	name  string
	netns ns.NetNS // nil without bridge
}

// moody is the delegate: the real host-local with a script before it.
//
//go:embed moody.sh
var moody []byte

const moodyName = "host-local-moody"

func newNode(bin string, pods int) (n *node, err error) {
	bin, err = filepath.Abs(bin)
	if err != nil {
		return nil, err
	}
	for _, b := range []string{"ipam-guard", "cni/host-local"} {
		if _, err := os.Stat(filepath.Join(bin, b)); err != nil {
			return nil, fmt.Errorf("%w: build it with `make build` or name its folder with --bin", err)
		}
	}
	n = &node{}
	defer func() {
		if err != nil {
			n.close()
		}
	}()
	if n.dir, err = folder(); err != nil {
		return nil, err
	}
	for i := range pods {
		n.pods = append(n.pods, pod{name: fmt.Sprintf("pod-%02d", i+1)})
	}
	n.isolate(bin)
	return n, n.install(bin)
}

// folder is a temporary one, on a disk if that can be had: in memory nothing can
// be promised.
func folder() (string, error) {
	const name = "ipam-guard-demo-"
	for _, on := range []string{os.TempDir(), "/var/tmp"} {
		if (&journal.Journal{Dir: on}).Lasting() != nil {
			continue
		}
		if dir, err := os.MkdirTemp(on, name); err == nil {
			return dir, nil
		}
	}
	return os.MkdirTemp("", name)
}

// isolate makes the namespaces, or notes why they can't be had.
func (n *node) isolate(bin string) {
	err := errors.New("not root")
	if os.Geteuid() == 0 {
		_, err = os.Stat(filepath.Join(bin, "cni/bridge"))
	}
	if err == nil {
		err = probe()
	}
	if err == nil {
		n.netns, err = ns.TempNetNS()
	}
	for i := range n.pods {
		if err == nil {
			n.pods[i].netns, err = ns.TempNetNS()
		}
	}
	if err != nil {
		n.why = err.Error()
		n.leave()
	}
}

// probe says why bridge can't work here: root in a container may lack the
// right, a small kernel the devices.
func probe() error {
	netns, err := ns.TempNetNS()
	if err != nil {
		return fmt.Errorf("no network namespaces: %w", err)
	}
	defer netns.Close()
	return netns.Do(func(ns.NetNS) error {
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}); err != nil {
			return fmt.Errorf("no bridge devices: %w", err)
		}
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "veth0"}, PeerName: "veth1"}
		if err := netlink.LinkAdd(veth); err != nil {
			return fmt.Errorf("no veth devices: %w", err)
		}
		return nil
	})
}

// install puts the delegate beside the others and makes the runtime that will
// find it there.
func (n *node) install(bin string) error {
	own := filepath.Join(n.dir, "bin")
	for _, dir := range []string{own, n.moods()} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(own, moodyName), moody, 0o755); err != nil {
		return err
	}
	n.runtime = libcni.NewCNIConfigWithCacheDir(
		[]string{own, bin, filepath.Join(bin, "cni")}, filepath.Join(n.dir, "cache"),
		newRunner(n.netns, "DEMO_MOODS="+n.moods(), "DEMO_HOST_LOCAL="+filepath.Join(bin, "cni/host-local")))
	return nil
}

func (n *node) moods() string { return filepath.Join(n.dir, "moods") }

// leave gives the namespaces back; the kernel removes what is in them.
func (n *node) leave() {
	for i := range n.pods {
		if n.pods[i].netns != nil {
			_ = n.pods[i].netns.Close()
			n.pods[i].netns = nil
		}
	}
	if n.netns != nil {
		_ = n.netns.Close()
		n.netns = nil
	}
}

func (n *node) close() {
	n.leave()
	if n.dir != "" {
		_ = os.RemoveAll(n.dir)
	}
}

// attachment says to libcni which interface of which pod is meant. A namespace
// goes by its descriptor in this process, so that none is ever left mounted.
func (p pod) attachment() *libcni.RuntimeConf {
	rt := &libcni.RuntimeConf{ContainerID: p.name, IfName: "eth0", NetNS: "/proc/self/ns/net"}
	if p.netns != nil {
		rt.NetNS = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), p.netns.Fd())
	}
	return rt
}
