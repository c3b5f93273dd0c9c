//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/google/go-cmp/cmp"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// Every version that bridge speaks, through a pod's whole life: what the
// runtime gets is what it gets without the guard.
func TestBridgeInEveryConfigVersion(t *testing.T) {
	info, err := newNetwork(t).cni.GetVersionInfo(context.Background(), "bridge")
	if err != nil {
		t.Fatal(err)
	}
	versions := info.SupportedVersions()
	if len(versions) < 7 {
		t.Fatalf("bridge speaks only %v", versions)
	}
	for _, v := range versions {
		t.Run(v, func(t *testing.T) {
			guarded, bare := life(t, v, guardtest.IPAM), life(t, v, guardtest.Bare)
			if diff := cmp.Diff(bare, guarded); diff != "" {
				t.Errorf("the result in libcni's cache differs from the one without the guard (-bare +guarded):\n%s", diff)
			}
		})
	}
}

// life attaches, checks and detaches one pod on a machine of its own, and
// returns the result that libcni keeps.
func life(t *testing.T, v, position string) string {
	t.Helper()
	ctx := context.Background()
	n := newNetwork(t)
	list := n.conflist(t, conf{
		Position: position, Version: v, Name: "pods",
		Guard: object{"log": object{"level": "debug"}}, // else a good CHECK or STATUS leaves no line
	})
	rt := n.container(t, "pod", "eth0")
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	must("STATUS", n.cni.GetStatusNetworkList(ctx, list))
	result, err := n.cni.AddNetworkList(ctx, list, rt)
	must("ADD", err)
	n.sameEverywhere(t, result, rt)
	cached := string(n.cached(t, list, rt))
	if atLeast(t, v, "0.4.0") {
		must("CHECK", n.cni.CheckNetworkList(ctx, list, rt))
	}
	valid := &libcni.GCArgs{ValidAttachments: []types.GCAttachment{{ContainerID: "pod", IfName: "eth0"}}}
	must("GC that lists the pod", n.cni.GCNetworkList(ctx, list, valid))
	n.sameEverywhere(t, result, rt)
	must("DEL", n.cni.DelNetworkList(ctx, list, rt))
	must("second DEL", n.cni.DelNetworkList(ctx, list, rt))
	if left := n.reserved(t, "pods"); len(left) > 0 {
		t.Errorf("reserved after DEL: %v", left)
	}
	if have := addresses(t, rt); len(have) > 0 {
		t.Errorf("the interface is left after DEL, with %v", have)
	}
	n.wasAsked(t, v, position)
	return normal(cached)
}

// sameEverywhere fails the test unless result, kernel and host-local's store
// have the same address.
func (n *network) sameEverywhere(t *testing.T, result types.Result, rt *libcni.RuntimeConf) {
	t.Helper()
	r, err := types100.NewResultFromResult(result)
	if err != nil || len(r.IPs) != 1 {
		t.Fatalf("result %v: %v", result, err)
	}
	address := r.IPs[0].Address
	if have := addresses(t, rt); !cmp.Equal(have, []string{address.String()}) {
		t.Errorf("eth0 has %v, the result says %s", have, &address)
	}
	want := map[string]string{address.IP.String(): rt.ContainerID + "/" + rt.IfName}
	if diff := cmp.Diff(want, n.reserved(t, "pods")); diff != "" {
		t.Errorf("host-local's reservations:\n%s", diff)
	}
}

// wasAsked shows by the guard's log that it was in the path, or that it wasn't.
func (n *network) wasAsked(t *testing.T, v, position string) {
	t.Helper()
	want := map[string]int{}
	if position == guardtest.IPAM {
		want = map[string]int{"ADD": 1, "DEL": 2}
		if atLeast(t, v, "0.4.0") {
			want["CHECK"] = 1
		}
		if atLeast(t, v, "1.1.0") {
			want["STATUS"] = 1 // bridge forwards no GC
		}
	}
	have := map[string]int{}
	for _, l := range n.Log(t) {
		have[fmt.Sprint(l["verb"])]++
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("%s: calls in the guard's log:\n%s", v, diff)
	}
}

func atLeast(t *testing.T, v, least string) bool {
	t.Helper()
	ok, err := version.GreaterThanOrEqualTo(v, least)
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

// normal replaces what bridge makes up anew each time: the names of the veths,
// MAC addresses, and the container's namespace.
func normal(text string) string {
	for _, r := range [][2]string{
		{`veth[0-9a-f]{8}`, "veth-host"},
		{`(?:[0-9a-f]{2}:){5}[0-9a-f]{2}`, "mac"},
		{`/proc/\d+/fd/\d+`, "netns"},
	} {
		text = regexp.MustCompile(r[0]).ReplaceAllString(text, r[1])
	}
	return text
}

// A pod that the caller's list lacks is released by libcni's GC: a DEL through
// the guard for its cached attachment.
func TestLibcniGCReleasesThroughTheGuard(t *testing.T) {
	ctx := context.Background()
	n := newNetwork(t)
	list := n.conflist(t, conf{Version: "1.1.0", Name: "pods"})
	for _, id := range []string{"stays", "goes"} {
		if _, err := n.cni.AddNetworkList(ctx, list, n.container(t, id, "eth0")); err != nil {
			t.Fatal(err)
		}
	}
	valid := []types.GCAttachment{{ContainerID: "stays", IfName: "eth0"}}
	if err := n.cni.GCNetworkList(ctx, list, &libcni.GCArgs{ValidAttachments: valid}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"stays/eth0"}, values(n.reserved(t, "pods"))); diff != "" {
		t.Error(diff)
	}
}

func TestStatusWithoutDelegate(t *testing.T) {
	n := newNetwork(t)
	list := n.conflist(t, conf{Version: "1.1.0", Delegate: object{"type": "gone"}})
	err := n.cni.GetStatusNetworkList(context.Background(), list)
	var e *types.Error
	if !asCNI(err, &e) || e.Code != types.ErrPluginNotAvailable || !strings.Contains(e.Msg, "gone") {
		t.Errorf("STATUS: %v, want code 50 and the delegate's name", err)
	}
}

func TestFiftyPodsAtOnce(t *testing.T) {
	ctx := context.Background()
	n := newNetwork(t)
	list := n.conflist(t, conf{Name: "pods"})
	pods := make([]*libcni.RuntimeConf, 50)
	for i := range pods {
		pods[i] = n.container(t, fmt.Sprintf("pod-%02d", i), "eth0")
	}
	atOnce(t, pods, func(rt *libcni.RuntimeConf) error {
		_, err := n.cni.AddNetworkList(ctx, list, rt)
		return err
	})
	owners := map[string]string{}
	for address, owner := range n.reserved(t, "pods") {
		owners[owner] = address + "/20"
	}
	for _, rt := range pods {
		if have := addresses(t, rt); !cmp.Equal(have, []string{owners[rt.ContainerID+"/eth0"]}) {
			t.Errorf("%s has %v, host-local gave it %s", rt.ContainerID, have, owners[rt.ContainerID+"/eth0"])
		}
	}
	if len(owners) != len(pods) {
		t.Errorf("%d reservations for %d pods", len(owners), len(pods))
	}
	atOnce(t, pods, func(rt *libcni.RuntimeConf) error { return n.cni.DelNetworkList(ctx, list, rt) })
	if left := n.reserved(t, "pods"); len(left) > 0 {
		t.Errorf("%d leaked: %v", len(left), left)
	}
}

// atOnce does something for all the attachments together.
func atOnce(t *testing.T, all []*libcni.RuntimeConf, do func(*libcni.RuntimeConf) error) {
	t.Helper()
	start := make(chan struct{})
	var wait sync.WaitGroup
	for _, rt := range all {
		wait.Go(func() {
			<-start
			if err := do(rt); err != nil {
				t.Errorf("%s: %v", rt.ContainerID, err)
			}
		})
	}
	close(start)
	wait.Wait()
}

// Case 45: two interfaces of one container (plugins #203).
func TestCase45TwoInterfacesOfOneContainer(t *testing.T) {
	ctx := context.Background()
	n := newNetwork(t)
	list := n.conflist(t, conf{Name: "pods"})
	netns := newNetns(t)
	eth0, net1 := attachment(netns, "pod", "eth0"), attachment(netns, "pod", "net1")
	for _, rt := range []*libcni.RuntimeConf{eth0, net1} {
		if _, err := n.cni.AddNetworkList(ctx, list, rt); err != nil {
			t.Fatal(err)
		}
	}
	before := addresses(t, eth0)
	if err := n.cni.DelNetworkList(ctx, list, net1); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"pod/eth0"}, values(n.reserved(t, "pods"))); diff != "" {
		t.Errorf("after the DEL of net1:\n%s", diff)
	}
	if after := addresses(t, eth0); len(before) != 1 || !cmp.Equal(before, after) {
		t.Errorf("eth0 had %v, has %v", before, after)
	}
}
