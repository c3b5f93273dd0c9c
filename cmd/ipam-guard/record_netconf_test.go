package main_test

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// marked is a call whose netconf can be told from others.
func marked(mark string, settings Object) guardtest.Opts {
	o := ask(nil, settings)
	o.Conf.Delegate = Object{"mark": mark}
	return o
}

// marks are those of the netconfs that the delegate got with its DELs.
func marks(t testing.TB, n *guardtest.Node) (list []string) {
	t.Helper()
	mark := regexp.MustCompile(`of the [A-Z]+`)
	for _, c := range n.Calls(t, "DEL") {
		list = append(list, mark.FindString(c.Stdin))
	}
	return list
}

// Case 17: the DEL that works, after one that didn't, has the netconf of the ADD
// and what the runtime says now (multus #355, #586).
func TestSecondDELHasTheNetconfOfItsADD(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	n.Run(t, "ADD", "c1", marked("of the ADD", nil)).OK(t)
	n.SetScript(t, Script{"DEL": []string{fail(999, "boom"), fail(999, "bang"), "free"}})
	del := marked("of the DEL", Object{"retry": Object{"backoff": "1ms"}})
	del.Conf.Top = Object{"prevResult": Object{"cniVersion": "1.0.0", "ips": []any{Object{"address": "10.9.0.77/16"}}}, "runtimeConfig": Object{"x": 5}}
	has(t, n.Run(t, "DEL", "c1", del).Error(t).Msg, "bang")
	n.Run(t, "DEL", "c1", del).OK(t)
	if have := fmt.Sprint(marks(t, n)); have != "[of the ADD of the DEL of the ADD]" {
		t.Errorf("netconfs %s", have)
	}
	for _, c := range n.Calls(t, "DEL") {
		has(t, c.Stdin, "10.9.0.77/16", `"runtimeConfig":{"x":5}`)
	}
	wantLeases(t, n)
	wantStates(t, n)
}

// Case 23: the network was renamed. This delegate, like host-local, looks under
// the name it gets, and says nothing if there is nothing.
func TestNetworkRenamed(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	by := func(name string) guardtest.Opts {
		o := ask(Script{"DEL": "free-network"}, nil)
		o.Conf.Name = name
		return o
	}
	n.Run(t, "ADD", "c1", by("old")).OK(t)
	n.SetScript(t, Script{"DEL": []string{fail(100, "boom"), "free-network"}})
	n.Run(t, "DEL", "c1", by("new")).Error(t)
	wantStates(t, n, "c1/eth0@old releasing netns") // one record, not one more under the new name
	n.Run(t, "DEL", "c1", by("new")).OK(t)
	wantLeases(t, n)
	wantStates(t, n)
	for _, c := range n.Calls(t, "DEL") {
		has(t, c.Stdin, `"name":"old"`)
	}
	wantCalls(t, n, "ADD DEL DEL")
}

// Case 24: a configuration that the delegate can't use says nothing about the
// address; the other one is tried (calico cni-plugin #254).
func TestUselessNetconfOnDEL(t *testing.T) {
	t.Parallel()
	for _, msg := range []string{"no IP ranges specified", "invalid CIDR address: usePodCidr"} {
		useless := Script{"ADD": "alloc", "DEL": fail(999, msg)}
		tests := map[string]struct {
			add, del Script
			fails    bool
			calls    string
		}{
			"on stdin":  {nil, useless, false, "ADD DEL"},
			"in record": {useless, nil, false, "ADD DEL DEL"},
			"in both":   {useless, Script{"DEL": fail(999, msg+" again")}, true, "ADD DEL DEL"},
		}
		for name, tt := range tests {
			t.Run(msg+"/"+name, func(t *testing.T) {
				t.Parallel()
				n := guardtest.New(t)
				settings := Object{"retry": Object{"backoff": "1ms"}}
				n.Run(t, "ADD", "c1", ask(tt.add, nil)).OK(t)
				r := n.Run(t, "DEL", "c1", ask(tt.del, settings))
				wantCalls(t, n, tt.calls)
				if tt.fails {
					has(t, r.Error(t).Msg, msg)
					wantLeases(t, n, "c1/eth0")
					wantStates(t, n, "c1/eth0 releasing netns")
					return
				}
				r.OK(t)
				wantLeases(t, n)
				wantStates(t, n)
			})
		}
		t.Run(msg+"/without record", func(t *testing.T) {
			t.Parallel()
			n := guardtest.New(t)
			n.Run(t, "ADD", "c1", bare(n, nil)).OK(t)
			has(t, n.Run(t, "DEL", "c1", ask(useless, nil)).Error(t).Msg, msg)
			wantStates(t, n, "c1/eth0 releasing netns")
		})
	}
}
