package main_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// Case 63: a GC of one network never touches another one's; Multus' second
// interface outlives a list that names only eth0.
func TestGCByRecord(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	on := func(network, ifname string) guardtest.Opts {
		o := ask(nil, nil)
		o.Conf.Name, o.IfName = network, ifname
		return o
	}
	for _, c := range []string{"named", "lives", "gone", "owed"} {
		n.Run(t, "ADD", c, on("blue", "eth0")).OK(t)
		n.Run(t, "ADD", c, on("red", "eth0")).OK(t)
	}
	n.Run(t, "ADD", "named", on("blue", "net1")).OK(t)
	n.SetScript(t, broken)
	n.Run(t, "DEL", "owed", on("blue", "eth0")).Error(t)
	n.Run(t, "DEL", "owed", on("red", "eth0")).Error(t)
	n.Run(t, "DEL", "gone", on("red", "eth0")).Error(t)
	n.SetNetns(t, "gone", "")

	n.SetScript(t, Script{"DEL": "free-network", "GC": "gc"})
	o := gcOf("named")
	o.Conf.Name = "blue"
	n.Run(t, "GC", "", o).OK(t)
	red := []string{"gone/eth0", "lives/eth0", "named/eth0", "owed/eth0"}
	wantLeases(t, n, "gone/eth0", "lives/eth0", "lives/eth0", "named/eth0", "named/eth0", "named/net1", "owed/eth0")
	wantStates(t, n,
		"gone/eth0@red releasing netns", "lives/eth0@blue attached", "lives/eth0@red attached",
		"named/eth0@blue attached", "named/eth0@red attached", "named/net1@blue attached", "owed/eth0@red releasing netns")
	forwarded := n.Calls(t, "GC")
	if len(forwarded) != 1 {
		t.Fatalf("%d GCs of the delegate", len(forwarded))
	}
	var conf struct {
		List []struct{ ContainerID, IfName string } `json:"cni.dev/valid-attachments"`
	}
	if err := json.Unmarshal([]byte(forwarded[0].Stdin), &conf); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, a := range conf.List {
		names[a.ContainerID+"/"+a.IfName] = true
	}
	if have := fmt.Sprint(names); have != "map[lives/eth0:true named/eth0:true named/net1:true]" || len(conf.List) != 3 {
		t.Errorf("forwarded %s", have)
	}
	for _, c := range past(t, 3, n.Calls(t, "DEL")) {
		if !strings.Contains(c.Stdin, `"name":"blue"`) || c.Container != "gone" && c.Container != "owed" {
			t.Errorf("a DEL of %s by %s", c.Container, c.Stdin)
		}
	}

	// What of the other network is gone goes with that one's own GC.
	o = gcOf("named", "lives", "owed")
	o.Conf.Name = "red"
	n.Run(t, "GC", "", o).OK(t)
	wantLeases(t, n, append(strings.Fields("lives/eth0 lives/eth0 named/eth0 named/eth0 named/net1"), red[3])...)
	n.NoOverlap(t)
}

// Cases 63 and 69: CRI-O lists no pods, which on the wire is null. Nothing is
// released and nothing forwarded, whatever is owed.
func TestGCWithANullList(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	owe(t, n, "owed", ask(nil, nil))
	strand(t, n, "stranded")
	n.Run(t, "ADD", "gone", ask(nil, nil)).OK(t)
	for _, c := range []string{"owed", "stranded", "gone"} {
		n.SetNetns(t, c, "")
	}
	before, calls := filesOf(t, n.StateDir), order(t, n)
	conf := string(n.Netconf(guardtest.Conf{Version: "1.1.0", Script: Script{"GC": "gc"}, Top: Object{"cni.dev/valid-attachments": "LIST"}}))
	r := n.Run(t, "GC", "", guardtest.Opts{Stdin: []byte(strings.Replace(conf, `"LIST"`, "null", 1))}).OK(t)
	if r.Stdout != "" {
		t.Errorf("stdout %q", r.Stdout)
	}
	has(t, strings.Join(warnings(lastLine(t, n)), "\n"), "without a list")
	wantCalls(t, n, calls)
	wantSame(t, before, filesOf(t, n.StateDir))
	wantLeases(t, n, "gone/eth0", "owed/eth0", "stranded/eth0")

	// An empty list is one: of the same records nothing is left.
	n.Run(t, "GC", "", gcOf()).OK(t)
	wantLeases(t, n)
	wantStates(t, n)
}

// Case 68: what a newer version wrote outlives a run of this one, untouched; the
// calls themselves go by stdin.
func TestNewerVersionsRecords(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	n.Run(t, "ADD", "c1", ask(nil, nil)).OK(t)
	owe(t, n, "c2", ask(nil, nil))
	for _, c := range []string{"c1", "c2"} {
		path := recordFile(t, n, c)
		rewrite(t, path, func(text string) string {
			if !strings.HasPrefix(text, `{"version":1,`) {
				t.Fatalf("have %s", text)
			}
			return `{"version":99,"novelty":{"a":[1]},` + strings.TrimPrefix(text, `{"version":1,`)
		})
		n.SetNetns(t, c, "")
	}
	before := filesOf(t, n.StateDir)
	come(t, n, "c3", "c4", "c5")
	n.Run(t, "ADD", "c1", ask(Script{"ADD": "alloc-same"}, nil)).OK(t)
	n.Run(t, "GC", "", gcOf("c1", "c2")).OK(t)
	has(t, strings.Join(warnings(lastLine(t, n)), "\n"), "2 records can't be read, or are of a newer version")
	wantLeases(t, n, "c1/eth0", "c2/eth0")
	n.Run(t, "DEL", "c1", ask(nil, nil)).OK(t)
	has(t, strings.Join(warnings(lastLine(t, n)), "\n"), "newer version")
	wantLeases(t, n, "c2/eth0")
	e := n.Run(t, "DEL", "c2", ask(Script{"DEL": fail(999, onFire)}, Object{"policy": Object{"onError": "defer"}})).Error(t)
	has(t, e.Msg+e.Details, onFire, "newer version") // nothing that we may promise by
	n.Run(t, "ADD", "c2", ask(Script{"ADD": fail(100, "no")}, nil)).Error(t)
	wantSame(t, before, filesOf(t, n.StateDir))
}
