//go:build integration

package integration_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// life is a pod's whole life, with all that the runtime sees of it.
func (c *chained) life(t *testing.T, cache bool) (observed []string) {
	t.Helper()
	ctx, rt := t.Context(), c.pod(t, "pod")
	note := func(what string, v any) { observed = append(observed, fmt.Sprintf("%s: %v", what, v)) }
	result, err := c.cni.AddNetworkList(ctx, c.list, rt)
	if err != nil {
		t.Fatal(err)
	}
	r, err := types100.NewResultFromResult(result)
	if err != nil || len(r.IPs) != 1 || r.IPs[0].Address.String() != "10.99.3.77/20" {
		t.Errorf("result %v, %v: without the address that was asked for", result, err)
	}
	note("result", c.normal(string(c.cached(t, c.list, rt))))
	note("addresses", addresses(t, rt))
	if diff := cmp.Diff(c.at.records(), c.records()); diff != "" {
		t.Errorf("records after ADD:\n%s", diff)
	}
	check := func() string { return c.told(c.cni.CheckNetworkList(ctx, c.list, rt)) }
	note("CHECK", check())
	c.change(t, rt, func(l netlink.Link) error { return netlink.LinkSetMTU(l, 1400) })
	note("CHECK, the chained plugin's part broken", check())
	c.change(t, rt, dropAddresses)
	note("CHECK, bridge's part broken", check())
	if !cache {
		if err := os.RemoveAll(c.cacheDir()); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		note("DEL", c.told(c.cni.DelNetworkList(ctx, c.list, rt)))
		note("left", c.leftovers(t, rt))
	}
	return observed
}

// A list of bridge and a chained plugin, guarded in every place: the runtime is
// told what it is told without the guard, byte for byte; the chained plugin gets
// the same; CHECK succeeds and fails alike; a DEL leaves nothing, with libcni's
// cache and without.
func TestChainedListInEveryPosition(t *testing.T) {
	for _, version := range []string{"0.4.0", "1.1.0"} {
		for _, cache := range []bool{true, false} {
			bare := newChained(t, version, guards{})
			want := bare.life(t, cache)
			wantSeen := bare.seen(t)
			if s := wantSeen[0]; !strings.Contains(s, `"hostPort":8080`) || !strings.Contains(s, `"prevResult":{`) || strings.Contains(s, "unasked") {
				t.Fatalf("this proves nothing, the chained plugin got %s", s)
			}
			for _, at := range arrangements() {
				t.Run(fmt.Sprintf("%s, %s, cache %t", version, at.name, cache), func(t *testing.T) {
					c := newChained(t, version, at)
					if diff := cmp.Diff(want, c.life(t, cache)); diff != "" {
						t.Errorf("what the runtime sees (-bare +guarded):\n%s", diff)
					}
					expected := wantSeen
					if at.after && !cache {
						expected = recalled(t, wantSeen)
					}
					if diff := cmp.Diff(expected, c.seen(t)); diff != "" {
						t.Errorf("what the chained plugin gets (-bare +guarded):\n%s", diff)
					}
				})
			}
		}
	}
}

// recalled is what a guarded plugin gets of a runtime that has forgotten the
// attachment: its first DEL has the prevResult of the ADD, from the record.
func recalled(t *testing.T, calls []string) []string {
	t.Helper()
	var add, del object
	first := slices.IndexFunc(calls, func(c string) bool { return strings.HasPrefix(c, "DEL ") })
	err := errors.Join(json.Unmarshal([]byte(calls[0][len("ADD "):]), &add), json.Unmarshal([]byte(calls[first][len("DEL "):]), &del))
	if err != nil || del["prevResult"] != nil {
		t.Fatalf("%v, or the runtime had not forgotten: %v", err, del)
	}
	del["prevResult"] = add["prevResult"]
	out := slices.Clone(calls)
	out[first] = "DEL " + string(mustJSON(t, del))
	return out
}

// A DEL that fails behind a shadow is deferred: the runtime is told success,
// another pod's DEL releases the address.
func TestShadowOfHostLocalDefersAndReplays(t *testing.T) {
	ctx := t.Context()
	c := newChained(t, "1.0.0", guards{shadow: true})
	c.SetNodeFile(t, object{"delegates": object{"host-local": object{"policy": object{"onError": "defer"}, "retry": object{"attempts": 1}}}})
	first, second := c.pod(t, "first"), c.pod(t, "second")
	second.CapabilityArgs["ips"] = []string{"10.99.3.78/20"}
	for _, rt := range []*libcni.RuntimeConf{first, second} {
		if _, err := c.cni.AddNetworkList(ctx, c.list, rt); err != nil {
			t.Fatal(err)
		}
	}
	heal := c.breakHostLocal(t)
	if err := c.cni.DelNetworkList(ctx, c.list, first); err != nil {
		t.Fatal(err)
	}
	if have := addresses(t, first); len(have) > 0 {
		t.Errorf("the interface is left, with %v", have)
	}
	if diff := cmp.Diff([]string{"host-local first releasing", "host-local second attached"}, c.records()); diff != "" {
		t.Errorf("records after a deferred DEL:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"first/eth0", "second/eth0"}, values(c.reserved(t, "pods"))); diff != "" {
		t.Errorf("reserved after a deferred DEL:\n%s", diff)
	}
	heal()
	if err := c.cni.DelNetworkList(ctx, c.list, second); err != nil {
		t.Fatal(err)
	}
	if left := c.leftovers(t, second); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	last := c.logged(t, "DEL")[1]
	if last["position"] != "shadow" || last["replays"] == nil {
		t.Errorf("logged %v", last)
	}
}

// newGCed is a list of bridge and the fake, both guarded as plugins, that knows
// GC and STATUS.
func newGCed(t *testing.T) *chained {
	t.Helper()
	c := newChained(t, "1.1.0", guards{})
	ipam := object{"type": "host-local", "dataDir": c.dataDir(), "ranges": [][]object{{{"subnet": "10.99.0.0/20"}}}}
	c.setList(t,
		c.wrap(true, object{"type": "bridge", "bridge": "br0", "ipam": ipam}),
		c.wrap(true, object{"type": "fake", "dir": c.FakeDir, "script": guardtest.Script{"GC": "gc", "STATUS": ""}}))
	return c
}

// What libcni asks of a list reaches the guards of whole plugins and what stands
// behind them; a container that is gone, and that nobody remembers, is released
// by its record.
func TestGCReachesPlugins(t *testing.T) {
	ctx := t.Context()
	c := newGCed(t)
	stays, gone := c.container(t, "stays", "eth0"), newNetns(t)
	for _, rt := range []*libcni.RuntimeConf{stays, attachment(gone, "gone", "eth0")} {
		if _, err := c.cni.AddNetworkList(ctx, c.list, rt); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(gone.Close(), os.RemoveAll(c.cacheDir())); err != nil {
		t.Fatal(err)
	}
	both := []string{"gone/eth0", "stays/eth0"}
	all := []string{"bridge gone attached", "bridge stays attached", "fake gone attached", "fake stays attached"}
	if diff := cmp.Diff(all, c.records()); diff != "" {
		t.Errorf("records:\n%s", diff)
	}

	// Bare, host-local would free everything at a list that is null.
	for _, args := range []*libcni.GCArgs{nil, {}} {
		if err := c.cni.GCNetworkList(ctx, c.list, args); err != nil {
			t.Fatal(err)
		}
		if !cmp.Equal(both, values(c.reserved(t, "pods"))) || !cmp.Equal(both, values(c.Leases(t))) || !cmp.Equal(all, c.records()) {
			t.Errorf("GC without a list left %v, %v, %v", c.reserved(t, "pods"), c.Leases(t), c.records())
		}
	}
	if n := len(c.Calls(t, "GC")); n != 0 {
		t.Errorf("a GC without a list reached the delegate %d times", n)
	}

	valid := []types.GCAttachment{{ContainerID: "stays", IfName: "eth0"}}
	if err := c.cni.GCNetworkList(ctx, c.list, &libcni.GCArgs{ValidAttachments: valid}); err != nil {
		t.Fatal(err)
	}
	one := []string{"stays/eth0"}
	if !cmp.Equal(one, values(c.reserved(t, "pods"))) || !cmp.Equal(one, values(c.Leases(t))) {
		t.Errorf("GC left %v, %v", c.reserved(t, "pods"), c.Leases(t))
	}
	if diff := cmp.Diff([]string{"bridge stays attached", "fake stays attached"}, c.records()); diff != "" {
		t.Errorf("records after GC:\n%s", diff)
	}
	calls := c.Calls(t, "GC")
	if len(calls) != 1 || !strings.Contains(calls[0].Stdin, `"cni.dev/valid-attachments":[{"containerID":"stays","ifname":"eth0"}]`) {
		t.Errorf("the delegate's GC: %+v", calls)
	}
	if len(addresses(t, stays)) != 1 {
		t.Error("the living container has lost its address")
	}
}

func TestStatusReachesPlugins(t *testing.T) {
	ctx := t.Context()
	c := newGCed(t)
	if err := c.cni.GetStatusNetworkList(ctx, c.list); err != nil {
		t.Fatal(err)
	}
	if have := len(c.logged(t, "STATUS")); have != 2 || len(c.Calls(t, "STATUS")) != 1 {
		t.Errorf("STATUS reached %d guards and %d delegates, want 2 and the fake", have, len(c.Calls(t, "STATUS")))
	}
	c.SetScript(t, guardtest.Script{"STATUS": `exit 1 "no room" 51 "none at all"`})
	if told := c.told(c.cni.GetStatusNetworkList(ctx, c.list)); told != `no room; none at all, code 51, details "none at all"` {
		t.Errorf("told %s", told)
	}
	c.SetScript(t, nil)
	heal := c.breakHostLocal(t) // bridge asks it
	if told := c.told(c.cni.GetStatusNetworkList(ctx, c.list)); !strings.Contains(told, "the store is on fire, code 100") {
		t.Errorf("told %s", told)
	}
	heal()
	if err := os.Rename(filepath.Join(c.Bin, "bridge"), filepath.Join(c.Bin, "away")); err != nil {
		t.Fatal(err)
	}
	if told := c.told(c.cni.GetStatusNetworkList(ctx, c.list)); !strings.Contains(told, `no delegate "bridge"`) || !strings.Contains(told, "code 50") {
		t.Errorf("told %s", told)
	}
}

// A guard comes to a list, or moves in it, while a pod is attached: its DEL runs
// every plugin of the list and leaves nothing. A record says what stood in its
// own place only: that of another plugin is not gone by.
func TestGuardMovesUnderAnAttachment(t *testing.T) {
	ipam, plugin, shadow := guards{ipam: true}, guards{main: true}, guards{shadow: true}
	around, both := guards{ipam: true, main: true}, guards{main: true, after: true}
	ipamAndAfter := guards{ipam: true, after: true}
	for name, move := range map[string][2]guards{
		"bare, then ipam":                   {{}, ipam},
		"bare, then both plugins":           {{}, both},
		"ipam, then the chained one, too":   {ipam, ipamAndAfter},
		"ipam, then plugin":                 {ipam, plugin},
		"ipam, then plugin around it":       {ipam, around},
		"ipam, then both plugins":           {ipam, both},
		"ipam, then shadow":                 {ipam, shadow},
		"shadow, then ipam":                 {shadow, ipam},
		"shadow, then plugin":               {shadow, plugin},
		"plugin, then ipam":                 {plugin, ipam},
		"plugin around ipam, then ipam":     {around, ipam},
		"plugin, then the chained one, too": {plugin, both},
		"both plugins, then ipam":           {both, ipamAndAfter},
	} {
		t.Run(name, func(t *testing.T) {
			c := newChained(t, "1.0.0", move[0])
			rt := c.pod(t, "pod")
			if _, err := c.cni.AddNetworkList(t.Context(), c.list, rt); err != nil {
				t.Fatal(err)
			}
			c.use(t, move[1])
			if err := c.cni.DelNetworkList(t.Context(), c.list, rt); err != nil {
				t.Error(err)
			}
			if left := c.leftovers(t, rt); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			if seen := c.seen(t); len(seen) != 2 || !strings.HasPrefix(seen[1], "DEL ") {
				t.Errorf("the chained plugin was called for %v", seen)
			}
		})
	}
}
