package main_test

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func wantLeases(t *testing.T, n *guardtest.Node, want map[string]string) {
	t.Helper()
	if have := n.Leases(t); !maps.Equal(have, want) {
		t.Errorf("leases %v, want %v", have, want)
	}
}

func TestLeases(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	run(t, n, "ADD", "c1", "alloc").OK(t)
	o := direct(n, guardtest.Conf{})
	o.IfName = "net1"
	n.Run(t, "ADD", "c1", o).OK(t)
	run(t, n, "ADD", "c1", "alloc; alloc6").OK(t)
	run(t, n, "ADD", "c2", "alloc").OK(t)
	wantLeases(t, n, map[string]string{
		"10.9.0.2": "c1/eth0", "10.9.0.3": "c1/net1", "10.9.0.4": "c1/eth0", "fd09::2": "c1/eth0", "10.9.0.5": "c2/eth0",
	})
	run(t, n, "DEL", "c1", "free").OK(t)
	wantLeases(t, n, map[string]string{"10.9.0.3": "c1/net1", "10.9.0.5": "c2/eth0"})
	if ips := run(t, n, "ADD", "c3", "alloc").IPs(t); !slices.Equal(ips, []string{"10.9.0.2"}) {
		t.Errorf("not the first free address: %v", ips)
	}
}

func TestAllocOnceAndSame(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	run(t, n, "ADD", "c1", "alloc-once").OK(t)
	r := run(t, n, "ADD", "c1", "alloc-once")
	if e := errorObject(t, r); r.RC != 1 || e.Code != 999 || !strings.Contains(e.Msg, "duplicate allocation is not allowed") {
		t.Errorf("have %+v", r)
	}
	for range 2 {
		if ips := run(t, n, "ADD", "c2", "alloc-same").IPs(t); !slices.Equal(ips, []string{"10.9.0.3"}) {
			t.Errorf("have %v", ips)
		}
	}
	wantLeases(t, n, map[string]string{"10.9.0.2": "c1/eth0", "10.9.0.3": "c2/eth0"})
}

func TestPoolExhausted(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	o := direct(n, guardtest.Conf{Delegate: guardtest.Object{"pool": 2}})
	n.Run(t, "ADD", "c1", o).OK(t)
	n.Run(t, "ADD", "c2", o).OK(t)
	r := n.Run(t, "ADD", "c3", o)
	const want = "no IP addresses available in range set: 10.9.0.2-10.9.0.3"
	if e := errorObject(t, r); r.RC != 1 || e.Code != 999 || !strings.Contains(e.Msg, want) {
		t.Errorf("have %+v", r)
	}
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	const many = 20
	procs := make([]*guardtest.Proc, many)
	for i := range procs {
		procs[i] = n.Start(t, "ADD", "c"+string(rune('a'+i)), direct(n, guardtest.Conf{}))
	}
	for _, p := range procs {
		p.Wait(t).OK(t)
	}
	if have := n.Leases(t); len(have) != many || have["10.9.0.21"] == "" {
		t.Errorf("%d leases: %v", len(have), have)
	}
	for i, c := range n.Calls(t) {
		if c.N != i+1 || !c.Ended {
			t.Errorf("call %d is numbered %d, ended %v", i+1, c.N, c.Ended)
		}
	}
	nth := map[int]bool{}
	for _, c := range n.Calls(t, "ADD") {
		nth[c.Nth] = true
	}
	if len(nth) != many {
		t.Errorf("%d different ADD numbers, want %d", len(nth), many)
	}
}

func TestFreeAndGCByNetwork(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	on := func(network, verb, container, script string, top guardtest.Object) {
		t.Helper()
		n.Run(t, verb, container, direct(n, guardtest.Conf{
			Name: network, Script: guardtest.Script{verb: script}, Top: top,
		})).OK(t)
	}
	on("a", "ADD", "c1", "alloc", nil)
	on("b", "DEL", "c1", "free-network", nil)
	wantLeases(t, n, map[string]string{"10.9.0.2": "c1/eth0"})
	on("a", "ADD", "c2", "alloc", nil)
	on("b", "ADD", "c3", "alloc", nil)
	on("a", "GC", "", "gc", guardtest.Object{"cni.dev/valid-attachments": []guardtest.Object{{"containerID": "c2", "ifname": "eth0"}}})
	wantLeases(t, n, map[string]string{"10.9.0.3": "c2/eth0", "10.9.0.4": "c3/eth0"})
	on("a", "DEL", "c2", "free-network", nil)
	on("b", "GC", "", "gc", guardtest.Object{"cni.dev/valid-attachments": nil})
	wantLeases(t, n, map[string]string{})
}
