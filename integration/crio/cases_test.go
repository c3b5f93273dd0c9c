//go:build integration || results

package crio_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"

	"github.com/ipam-guard/ipam-guard/integration/internal/trial"
	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

const long = 2 * time.Minute

// Case 19: the DEL of one network of a pod fails; the other network's DEL still
// runs, and CRI-O never asks for the first one again (ocicni #86, multus #152).
func TestCase19OneNetworkFails(t *testing.T) {
	t.Parallel()
	m, c := newMachine(t, trial.IPAM(), trial.Network{Name: "one"}, trial.Network{Name: "two"})
	p := c.pod("pod")
	trial.OK(t, "Run", p.Run(long))
	m.SetScript(t, guardtest.Script{"DEL": []string{`exit 1 "the pool server is on fire" 100`, "free"}})
	attempts := len(m.Calls(t, "DEL"))
	if a := p.Stop(long); a.Err == nil {
		t.Error("Stop: a DEL that failed was taken for a success")
	}
	var networks []string
	for _, call := range m.Calls(t, "DEL")[attempts:] {
		networks = append(networks, call.IfName)
	}
	if leases := m.Leases(t); !slices.Equal(networks, []string{"eth0", "eth1"}) || len(leases) != 1 {
		t.Errorf("DELs of %v, want eth0's and then eth1's; addresses: %v, want eth0's", networks, leases)
	}
	m.SetScript(t, nil)
	trial.OK(t, "second Stop", p.Stop(long))
	trial.OK(t, "Remove", p.Remove(long))
	comeAndGo(t, c, "other")
	m.WantNothingLeft(t)
}

// The DEL of a pod's first network takes the minute that is for all of them
// (here: 5 s, and the guard would have gone on for longer). The second network
// gets none, then or later. Its attachment's namespace is gone with the pod, and
// ten minutes on anyone releases it.
func TestSecondNetworkGetsNoDEL(t *testing.T) {
	t.Parallel()
	slow := guardtest.Object{"timeout": guardtest.Object{"del": "20s"}, "deadline": guardtest.Object{"del": "30s"}}
	m, c := newMachine(t, trial.IPAM(), trial.Network{Name: "one", Settings: slow}, trial.Network{Name: "two"})
	p := c.pod("pod")
	trial.OK(t, "Run", p.Run(long))
	m.SetScript(t, guardtest.Script{"DEL": "sleep 1h"})
	if a := p.Stop(5 * time.Second); !errors.Is(a.Err, context.DeadlineExceeded) {
		t.Errorf("Stop: %v, want its time to be up", a.Err)
	}
	m.SetScript(t, nil)
	trial.OK(t, "second Stop", p.Stop(long))
	trial.OK(t, "Remove", p.Remove(long))
	for _, call := range m.Calls(t, "DEL") {
		if call.IfName != "eth0" {
			t.Errorf("%s was asked for a DEL: this test shows nothing", call.IfName)
		}
	}
	comeAndGo(t, c, "other")
	if leases, records := m.Leases(t), m.Records(t); len(leases) != 1 || records != 1 {
		t.Errorf("addresses: %v, records: %d; want those of the second network", leases, records)
	}
	comeAndGo(t, c, "another") // in which the namespace is seen to be gone, if it wasn't yet
	if noted, can := m.TenMinutesOn(t); can {
		if noted != 1 {
			t.Errorf("%d records say since when their namespace is gone, want 1", noted)
		}
		comeAndGo(t, c, "later")
		m.WantNothingLeft(t)
	}
}

func comeAndGo(t *testing.T, c *crio, name string) {
	t.Helper()
	time.Sleep(time.Second) // what failed is due after that
	p := c.pod(name)
	for _, call := range []func(time.Duration) trial.Answer{p.Run, p.Stop, p.Remove} {
		trial.OK(t, name, call(long))
	}
}

// Case 43: 50 DELs in a row; a DEL while its ADD is running; three at once
// (kubernetes #20379, meshnet-cni #70).
func TestCase43ManyDELs(t *testing.T) {
	t.Parallel()
	m, c := newMachine(t, trial.IPAM(), trial.Network{Name: "pods"})
	p := c.pod("pod")
	del := func() error {
		return c.cni.DelNetworkList(context.Background(), c.nets[0], p.attachment(0))
	}
	m.SetScript(t, guardtest.Script{"ADD": "alloc; sleep 1s"})
	run := make(chan trial.Answer)
	go func() { run <- p.Run(long) }()
	m.AwaitCalls(t, "ADD", 1)
	if err := del(); err != nil {
		t.Errorf("DEL while its ADD is running: %v", err)
	}
	<-run // its CHECK may come before the DEL, or after it
	atOnce := make(chan error)
	for range 3 {
		go func() { atOnce <- del() }()
	}
	for range 3 {
		if err := <-atOnce; err != nil {
			t.Errorf("one of three DELs at once: %v", err)
		}
	}
	for i := range 50 {
		if err := del(); err != nil {
			t.Fatalf("DEL %d of 50: %v", i+1, err)
		}
	}
	trial.OK(t, "Remove", p.Remove(long))
	m.WantNothingLeft(t)
}

// Case 69: CRI-O lists no pods: "cni.dev/valid-attachments" is null on the wire.
// Nothing is released and nothing forwarded, where the plugin alone would have
// taken the list for an empty one.
func TestCase69NullList(t *testing.T) {
	for _, p := range []trial.Position{trial.None(), trial.Plugin()} {
		t.Run(trial.ID(p.Name), func(t *testing.T) {
			t.Parallel()
			m, c := newMachine(t, p, trial.Network{Name: "pods"})
			c.nets[0] = alone(t, m, p)
			pod := c.pod("pod")
			// Bare, it is the fake delegate that is asked in bridge's place.
			_, err := c.cni.AddNetworkList(context.Background(), c.nets[0], pod.attachment(0))
			if err != nil {
				t.Fatal(err)
			}
			c.cniKeepsIn(m.Node, []string{m.Bin}, "cache-of-another-boot")
			m.SetScript(t, guardtest.Script{"GC": "gc"})
			if err := c.start(context.Background()); err != nil {
				t.Errorf("GC: %v", err)
			}
			leases, calls := len(m.Leases(t)), m.Calls(t, "GC")
			if p.Where == guardtest.Bare {
				bareGC(t, leases, calls[0].Stdin)
				return
			}
			if leases != 1 || len(calls) != 0 {
				t.Errorf("%d addresses are left of 1, the delegate was asked for %d GCs, want none", leases, len(calls))
			}
			if !loggedGC(t, m) {
				t.Error("the guard was not asked: this test shows nothing")
			}
			if err := c.cni.DelNetworkList(context.Background(), c.nets[0], pod.attachment(0)); err != nil {
				t.Error(err)
			}
			m.WantNothingLeft(t)
		})
	}
}

// alone is a list with the fake delegate as its only plugin: the reference main
// plugins forward no GC.
func alone(t *testing.T, m *trial.Machine, p trial.Position) *libcni.NetworkConfigList {
	t.Helper()
	fake := guardtest.Object{"type": "fake", "dir": m.FakeDir}
	plugin := fake
	if p.Where == guardtest.Plugin {
		plugin = guardtest.Object{"type": "ipam-guard", "delegate": fake, "guard": guardtest.Object{
			"lockDir": m.LockDir, "stateDir": m.StateDir, "log": guardtest.Object{"file": m.LogFile},
		}}
	}
	text, err := json.Marshal(guardtest.Object{"cniVersion": "1.1.0", "name": "pods", "plugins": []any{plugin}})
	if err != nil {
		t.Fatal(err)
	}
	list, err := libcni.ConfListFromBytes(text)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// bareGC shows what the case is about: a list that is null frees a living pod's
// address.
func bareGC(t *testing.T, leases int, stdin string) {
	t.Helper()
	var netconf map[string]json.RawMessage
	if err := json.Unmarshal([]byte(stdin), &netconf); err != nil {
		t.Fatal(err)
	}
	if list := string(netconf["cni.dev/valid-attachments"]); list != "null" {
		t.Errorf("the list on the wire is %q, not null: the case is no longer there", list)
	}
	if leases != 0 {
		t.Errorf("%d addresses are left: the delegate alone no longer frees them, this test shows nothing", leases)
	}
}

func loggedGC(t *testing.T, m *trial.Machine) bool {
	t.Helper()
	for _, line := range m.Log(t) {
		if line["verb"] == "GC" {
			return true
		}
	}
	return false
}
