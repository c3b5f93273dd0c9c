package main

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// installer is a program that writes configurations of its own, or minds those of
// others.
type installer struct {
	comm string // of its process, at most 15 letters
	does string
	tell string // how it is told not to; "" if it can't be
}

var installers = []installer{
	{"cilium-agent", "Cilium moves the configurations of others away at each start (cilium #26760)",
		`kubectl -n kube-system edit configmap cilium-config   # cni-exclusive: "false"`},
	{"antrea-agent", "Antrea writes its configuration anew at each start (antrea #3974)", ""},
	{"azure-cns", "Azure CNS writes its configuration anew (AKS #5165)", ""},
	{"calico-node", "Calico's install container writes 10-calico.conflist anew at each start of the pod", ""},
	{"install-cni", "Istio's installer edits the first configuration, and writes it anew when somebody changes it (istio #28258)", ""},
	{"install-cni.sh", "Linkerd's installer edits the first configuration, and again when it changes (linkerd2 #8070)", ""},
	{"aws-k8s-agent", "the Amazon VPC plugin writes 10-aws.conflist anew at each start", ""},
	{"multus-daemon", "Multus makes 00-multus.conf from the first configuration, and anew when that changes", ""},
	{"kindnetd", "kindnet writes 10-kindnet.conflist anew when its settings change", ""},
	{"kube-router", "kube-router writes into its configuration at each start", ""},
}

// lookAtInstallers finds, by its processes, who else writes configurations.
func (d *doctor) lookAtInstallers() {
	running := map[string]process{}
	for _, p := range processes(d.at("/proc")) {
		running[p.comm] = p
	}
	none := true
	for _, i := range installers {
		p, ok := running[i.comm]
		if !ok {
			continue
		}
		none = false
		mend := i.tell
		if mend == "" {
			mend = "ipam-guardctl wrap " + d.confDir + "   # after each time that it did"
		}
		if d.guarded {
			d.find("installer", fmt.Sprintf("process %s: %s", p, i.does), "the guard is lost with the text that it replaces", mend)
		} else {
			d.ok("installer", "process %s: %s", p, i.does)
		}
	}
	if none {
		d.ok("installer", "none of those that are known to write configurations runs")
	}
}

// lookAtMultus: the daemon of Multus runs delegates in a root of its own. Guards
// there must meet those of the runtime at the same locks and records.
func (d *doctor) lookAtMultus() {
	for _, p := range processes(d.at("/proc")) {
		if p.comm == "multus-daemon" {
			d.lookAtRoot(p)
		}
	}
}

func (d *doctor) lookAtRoot(p process) {
	root := p.path("root")
	if _, err := os.Stat(root + "/."); err != nil {
		d.unseen("multus", err)
		return
	}
	if _, err := os.Stat(root + "/hostroot"); err == nil {
		root += "/hostroot" // where the daemon goes before it runs a delegate
	}
	other := 0
	for _, dir := range d.shared() {
		here := existing(d.at(dir))
		path := here[len(d.root):]
		if sameFile(here, root+path) {
			continue
		}
		other++
		d.find("multus", fmt.Sprintf("%s, where Multus runs plugins (%s, process %s), is not the node's", path, root, p),
			"guards for a pod's other networks would take other locks, or not find its records",
			"kubectl -n kube-system edit daemonset kube-multus-ds   # mount / at /hostroot, mountPropagation: HostToContainer, and "+path+" with it")
	}
	if other == 0 {
		d.ok("multus", "process %s sees the same folders (%s)", p, root)
	}
}

// shared are the paths that all guards of a node must have in common.
func (d *doctor) shared() []string {
	var dirs []string
	for _, s := range d.settings() {
		dirs = append(dirs, s.LockDir, s.StateDir)
	}
	return once(append(dirs, filepath.Dir(d.onNode(d.nodeFile))))
}

func sameFile(a, b string) bool {
	var x, y unix.Stat_t
	return unix.Stat(a, &x) == nil && unix.Stat(b, &y) == nil && x.Dev == y.Dev && x.Ino == y.Ino
}
