package audit_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ipam-guard/ipam-guard/cmd/ipam-guardctl/internal/audit"
	"github.com/ipam-guard/ipam-guard/cmd/ipam-guardctl/internal/store"
	"github.com/ipam-guard/ipam-guard/pkg/chain"
	"github.com/ipam-guard/ipam-guard/pkg/journal"
)

// now is any time.
func now() time.Time { return time.Date(2026, 12, 2, 3, 4, 5, 0, time.UTC) }

func pods() audit.Network {
	return audit.Network{Name: "pods", Delegate: "host-local", Ranges: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/24")}, Sets: 1}
}

func cluster() audit.Network {
	return audit.Network{Name: "storage", Delegate: "whereabouts", Ranges: []netip.Prefix{netip.MustParsePrefix("10.70.0.0/24")}}
}

func file(address, container string) store.Held {
	return store.Held{
		Network: "pods", Delegate: "host-local", Address: netip.MustParseAddr(address), Container: container, IfName: "eth0",
		Place: "/store/" + address, Since: now().Add(-time.Hour),
	}
}

func pool(address, container, pod string) store.Held {
	return store.Held{Delegate: "whereabouts", Address: netip.MustParseAddr(address), Container: container, IfName: "net1", Pod: pod, Place: "pool"}
}

func second(address string) store.Held {
	return store.Held{Delegate: "whereabouts", Address: netip.MustParseAddr(address), Pod: "default/web", Place: "ns " + address, Second: true}
}

func recorded(container, address string, state journal.State) chain.Held {
	h := chain.Held{}
	h.Key = journal.Key{Network: "pods", Container: container, IfName: "eth0", Delegate: "host-local"}
	h.State = state
	if address != "" {
		h.Result = []byte(`{"cniVersion": "1.0.0", "ips": [{"address": "` + address + `/24"}]}`)
	}
	return h
}

func gone(h chain.Held, releasable bool) chain.Held {
	h.NetnsGone, h.Releasable = true, releasable
	return h
}

// What is a finding, and what is none.
func TestCompare(t *testing.T) {
	t.Parallel()
	ip := netip.MustParseAddr
	for name, test := range map[string]struct {
		facts audit.Facts
		want  []string
	}{
		"listed":                    {audit.Facts{Held: []store.Held{file("10.9.0.2", "listed")}}, nil},
		"listed by its beginning":   {audit.Facts{Held: []store.Held{file("10.9.0.2", "abcdef0123456789")}}, nil},
		"nobody's":                  {audit.Facts{Held: []store.Held{file("10.9.0.2", "x")}}, []string{"leaked 10.9.0.2"}},
		"a living record":           {audit.Facts{Held: []store.Held{file("10.9.0.2", "x")}, Records: []chain.Held{recorded("x", "10.9.0.2", journal.Attached)}}, nil},
		"netns gone just now":       {audit.Facts{Held: []store.Held{file("10.9.0.2", "x")}, Records: []chain.Held{gone(recorded("x", "10.9.0.2", journal.Attached), false)}}, nil},
		"netns gone for long":       {audit.Facts{Held: []store.Held{file("10.9.0.2", "x")}, Records: []chain.Held{gone(recorded("x", "10.9.0.2", journal.Attached), true)}}, []string{"leaked 10.9.0.2"}},
		"gone for long, but listed": {audit.Facts{Held: []store.Held{file("10.9.0.2", "listed")}, Records: []chain.Held{gone(recorded("listed", "10.9.0.2", journal.Attached), true)}}, nil},
		"gone for long, but an interface has it": {audit.Facts{Held: []store.Held{file("10.9.0.2", "x")}, InUse: map[netip.Addr]string{ip("10.9.0.2"): "there"},
			Records: []chain.Held{gone(recorded("x", "10.9.0.2", journal.Attached), true)}}, nil},
		"owed":                            {audit.Facts{Held: []store.Held{file("10.9.0.2", "x")}, Records: []chain.Held{gone(recorded("x", "", journal.Releasing), true)}}, nil},
		"starting":                        {audit.Facts{Held: []store.Held{file("10.9.0.2", "x")}, Records: []chain.Held{recorded("x", "", journal.Adding)}}, nil},
		"at work":                         {audit.Facts{Held: []store.Held{file("10.9.0.2", "x")}, Records: []chain.Held{{Record: recorded("x", "", journal.Attached).Record, Busy: true, NetnsGone: true}}}, nil},
		"unreadable":                      {audit.Facts{Held: []store.Held{file("10.9.0.2", "x")}, Records: []chain.Held{{Record: recorded("x", "", "").Record, Unreadable: true}}}, nil},
		"unreadable, of whom is not said": {audit.Facts{Held: []store.Held{file("10.9.0.2", "x")}, Records: []chain.Held{{Unreadable: true}}}, nil},
		"podman's":                        {audit.Facts{Held: []store.Held{file("10.9.0.2", "x")}, InUse: map[netip.Addr]string{ip("10.9.0.2"): "there"}}, nil},
		"empty":                           {audit.Facts{Held: []store.Held{file("10.9.0.2", "")}}, []string{"empty 10.9.0.2"}},
		"outside":                         {audit.Facts{Held: []store.Held{file("10.8.0.2", "x")}}, []string{"foreign 10.8.0.2"}},
		"two who live": {audit.Facts{Held: []store.Held{file("10.9.0.2", "listed"), {Network: "old", Address: ip("10.9.0.2"), Container: "other"}},
			InUse: map[netip.Addr]string{ip("10.9.0.2"): "there"}}, []string{"duplicate 10.9.0.2", "duplicate 10.9.0.2"}},
		"a second one":     {audit.Facts{Held: []store.Held{file("10.9.0.2", "listed"), file("10.9.0.3", "listed")}, Records: []chain.Held{recorded("listed", "10.9.0.2", journal.Attached)}}, []string{"duplicate 10.9.0.3"}},
		"robbed":           {audit.Facts{Records: []chain.Held{recorded("x", "10.9.0.2", journal.Attached)}}, []string{"unheld 10.9.0.2"}},
		"robbed by other":  {audit.Facts{Held: []store.Held{file("10.9.0.2", "listed")}, Records: []chain.Held{recorded("x", "10.9.0.2", journal.Attached)}}, []string{"unheld 10.9.0.2"}},
		"dead, no address": {audit.Facts{Records: []chain.Held{gone(recorded("x", "10.9.0.2", journal.Attached), false)}}, nil},

		"pool, pod elsewhere":   {audit.Facts{Held: []store.Held{pool("10.70.0.1", "x", "default/web")}, Pods: map[string]bool{"default/web": true}}, nil},
		"pool, no pod":          {audit.Facts{Held: []store.Held{pool("10.70.0.1", "x", "default/web")}, Pods: map[string]bool{}}, []string{"leaked 10.70.0.1"}},
		"pool, no pod, listed":  {audit.Facts{Held: []store.Held{pool("10.70.0.1", "listed", "default/web")}, Pods: map[string]bool{}}, nil},
		"pool, pods not known":  {audit.Facts{Held: []store.Held{pool("10.70.0.1", "x", "default/web")}}, nil},
		"pool, pod runs anew":   {audit.Facts{Held: []store.Held{pool("10.70.0.1", "x", "default/here")}, Pods: map[string]bool{"default/here": true}}, []string{"leaked 10.70.0.1"}},
		"second mark":           {audit.Facts{Held: []store.Held{pool("10.70.0.1", "listed", "default/web"), second("10.70.0.1")}}, nil},
		"second mark left over": {audit.Facts{Held: []store.Held{second("10.70.0.1")}}, []string{"reservation 10.70.0.1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := test.facts
			f.Now, f.Networks = now(), []audit.Network{pods(), cluster()}
			f.Running = audit.Running{IDs: map[string]bool{"listed": true, "abcdef012345": true}, Pods: map[string]bool{"default/here": true}}
			var have []string
			for _, one := range audit.Compare(f) {
				have = append(have, string(one.Kind)+" "+one.Address)
				if one.Why == "" {
					t.Errorf("no reason: %+v", one)
				}
			}
			if !slices.Equal(have, test.want) {
				t.Errorf("%q, want %q", have, test.want)
			}
		})
	}
}

// What has no record is released only when no pod can be starting with it.
func TestReleasable(t *testing.T) {
	t.Parallel()
	young := file("10.9.0.3", "y")
	young.Since = now().Add(-audit.Patience + time.Second)
	found := audit.Compare(audit.Facts{
		Now: now(), Networks: []audit.Network{pods()},
		Held: []store.Held{file("10.9.0.2", "x"), young, file("10.9.0.4", "")},
	})
	var have []bool
	for _, f := range found {
		have = append(have, f.Releasable(now()))
	}
	if !slices.Equal(have, []bool{true, false, false}) {
		t.Errorf("%v of %+v", have, found)
	}
}

// What only one look has is none.
func TestBoth(t *testing.T) {
	t.Parallel()
	one := audit.Finding{Kind: audit.Leaked, Address: "10.9.0.2", Container: "x"}
	other := audit.Finding{Kind: audit.Leaked, Address: "10.9.0.2", Container: "y"}
	if both := audit.Both([]audit.Finding{one}, []audit.Finding{other, one}); len(both) != 1 || both[0].Container != "x" {
		t.Errorf("%+v", both)
	}
}
