package audit

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ipam-guard/ipam-guard/cmd/ipam-guardctl/internal/store"
	"github.com/ipam-guard/ipam-guard/pkg/chain"
	"github.com/ipam-guard/ipam-guard/pkg/journal"
)

type comparison struct {
	Facts
	records map[string][]*chain.Held     // by container
	living  map[netip.Addr][]store.Held  // held for who lives
	all     map[netip.Addr][]store.Held  // whoever holds it
	several map[attachment][]store.Held  // of those without a record
	own     map[*chain.Held][]netip.Addr // what records say that their ADD got
	found   []Finding
}

type attachment struct{ network, container, ifname string }

func newComparison(f Facts) *comparison {
	c := &comparison{
		Facts: f, records: map[string][]*chain.Held{}, several: map[attachment][]store.Held{},
		living: map[netip.Addr][]store.Held{}, all: map[netip.Addr][]store.Held{}, own: map[*chain.Held][]netip.Addr{},
	}
	for i := range f.Records {
		r := &f.Records[i]
		c.records[r.Container], c.own[r] = append(c.records[r.Container], r), AddressesOf(r.Result)
	}
	for _, h := range f.Held {
		if h.Address.IsValid() && !h.Second {
			c.all[h.Address] = append(c.all[h.Address], h)
		}
	}
	return c
}

func (c *comparison) find(kind Kind, h store.Held, r *chain.Held, why, mend string) {
	f := Finding{
		Kind: kind, Delegate: h.Delegate, Network: h.Network, Container: h.Container, IfName: h.IfName,
		Pod: h.Pod, Place: h.Place, Why: why, Mend: mend, Held: h, Record: r,
	}
	if h.Address.IsValid() {
		f.Address = h.Address.String()
	}
	if r != nil {
		f.Network, f.IfName, f.StateDir = r.Network, r.IfName, c.StateDirs[r.Key]
	}
	c.found = append(c.found, f)
}

// held looks at one thing that a store has.
func (c *comparison) held(h store.Held) {
	where, used := c.InUse[h.Address]
	switch {
	case !h.Address.IsValid():
		c.find(Foreign, h, nil, "this is no address: somebody else's, in the delegate's store", "look at it, then: "+byHand(h))
	case h.Second && len(c.all[h.Address]) == 0:
		c.find(Reservation, h, nil, "no pool has this address: other pods pass it over, and no DEL looks for it",
			"kubectl delete overlappingrangeipreservations.whereabouts.cni.cncf.io -n "+h.Place)
	case h.Second:
	case h.Empty() && used:
		c.find(Empty, h, nil, "nobody is named as its owner, but "+where+" has the address", "")
	case h.Empty():
		c.find(Empty, h, nil, "nobody is named as its owner: its address is taken for ever, no DEL finds it", byHand(h))
	default:
		c.owned(h)
	}
}

// owned looks at an address that is held for a container.
func (c *comparison) owned(h store.Held) {
	r := c.recordOf(h)
	_, used := c.InUse[h.Address]
	running := c.Running.Has(h.Container)
	switch {
	case r != nil && (r.Busy || r.Unreadable || r.Pending()): // the record says what becomes of it
	case r != nil && (running || !r.Releasable):
		c.lives(h, r)
	case running || used:
		c.lives(h, nil)
	case r != nil:
		c.find(Leaked, h, r, "no runtime lists its container, and its network namespace is gone for ten minutes", "ipam-guardctl audit --release")
	case h.Pod != "":
		c.ofPod(h)
	case c.outside(h):
		c.find(Foreign, h, nil, "no configuration and no record here is of a network with this address, and nothing that runs here has it",
			"find out whose it was, then: "+byHand(h))
	default:
		c.find(Leaked, h, nil, c.gone(h), "ipam-guardctl audit --release")
	}
}

// byHand says how a person takes something out of a store.
func byHand(h store.Held) string {
	if h.Delegate != "host-local" {
		return "take it out of " + h.Place
	}
	return "rm -- " + quoted(h.Place)
}

// quoted is a path as a shell takes it: its name is whatever somebody has written
// there.
func quoted(path string) string {
	plain := func(r rune) bool {
		return r == '/' || r == '.' || r == '-' || r == '_' || r == ':' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
	}
	if strings.IndexFunc(path, func(r rune) bool { return !plain(r) }) < 0 {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

func (c *comparison) gone(h store.Held) string {
	why := "no runtime lists its container, no interface has the address, and there is no record of it"
	if young(h, c.Now) {
		why += "; not ten minutes old, so it may be of a pod that is starting: not released yet"
	}
	return why
}

func young(h store.Held, now time.Time) bool {
	return !h.Since.IsZero() && now.Sub(h.Since) < Patience
}

// ofPod decides by the pod that a cluster-wide store names: its container may be
// on any node.
func (c *comparison) ofPod(h store.Held) {
	switch {
	case c.Running.Pods[h.Pod]:
		c.find(Leaked, h, nil, "its pod runs here in another container: this one is of an earlier pod of that name", "ipam-guardctl audit --release")
	case c.Pods == nil || c.Pods[h.Pod]: // not known, or on another node
	default:
		c.find(Leaked, h, nil, "the cluster has no pod of that name, and no runtime here lists its container", "ipam-guardctl audit --release")
		c.found[len(c.found)-1].NoPod = true
	}
}

// lives notes an address whose owner lives.
func (c *comparison) lives(h store.Held, r *chain.Held) {
	own := c.own[r]
	if len(own) == 0 {
		c.living[h.Address] = append(c.living[h.Address], h)
		a := attachment{h.Network, h.Container, h.IfName}
		c.several[a] = append(c.several[a], h)
		return
	}
	if _, used := c.InUse[h.Address]; !used && !slices.Contains(own, h.Address) {
		c.find(Duplicate, h, r, fmt.Sprintf("a second address of one attachment: its ADD got %s, and no interface has this one", own[0]),
			"it goes with its container's DEL, or: "+byHand(h))
		return
	}
	c.living[h.Address] = append(c.living[h.Address], h)
}

// duplicates are addresses of two who live, and those that an attachment without
// a record has more than its network gives it.
func (c *comparison) duplicates() {
	for _, list := range c.living {
		for i, h := range list {
			other := list[(i+1)%len(list)]
			if other.Container != h.Container {
				c.find(Duplicate, h, nil, fmt.Sprintf("the address is held for %s too: %s", other.Container, other.Place),
					"restart one of the two pods; give their networks ranges that don't overlap")
			}
		}
	}
	for _, list := range c.several {
		n := c.network(list[0])
		if n == nil || n.Sets == 0 || len(list) <= n.Sets {
			continue
		}
		for _, h := range list {
			if _, used := c.InUse[h.Address]; !used {
				c.find(Duplicate, h, nil, fmt.Sprintf("its attachment holds %d addresses where the network gives %d, and no interface has this one", len(list), n.Sets),
					"it goes with its container's DEL, or: "+byHand(h))
			}
		}
	}
}

// unheld finds the addresses of a living attachment that its delegate would give
// to another.
func (c *comparison) unheld(r *chain.Held) {
	lives := c.Running.Has(r.Container) || !r.NetnsGone
	if r.Busy || r.Unreadable || r.State != journal.Attached || !lives {
		return
	}
	for _, a := range c.own[r] {
		h := store.Held{Network: r.Network, Delegate: r.Delegate, Address: a, Container: r.Container, IfName: r.IfName, Place: "record of " + r.Container}
		n := c.network(h)
		mine := slices.ContainsFunc(c.all[a], func(o store.Held) bool { return o.Container == r.Container })
		switch {
		case n == nil || mine:
		case len(c.all[a]) > 0:
			c.find(Unheld, h, r, "its attachment lives, and the delegate holds the address for "+c.all[a][0].Container, "restart one of the two pods")
		default:
			c.find(Unheld, h, r, "its attachment lives, and the delegate doesn't hold the address: it gives it to the next pod", "restart the pod")
		}
	}
}

// recordOf is the record of what an address is held for. A pool of whereabouts
// says nothing of networks, an old reservation nothing of interfaces.
func (c *comparison) recordOf(h store.Held) *chain.Held {
	var best *chain.Held
	for _, r := range slices.Concat(c.records[h.Container], c.records[""]) {
		if r.Unreadable { // its name may be too long to say whose it is: then it may be anybody's
			return r
		}
		if h.Network != "" && r.Network != h.Network || h.IfName != "" && r.IfName != h.IfName {
			continue
		}
		own := c.own[r]
		if slices.Contains(own, h.Address) {
			return r
		}
		if len(own) == 0 || h.Network != "" || r.Delegate == h.Delegate {
			best = r
		}
	}
	return best
}

// network is the one that an address is of; nil where none is known.
func (c *comparison) network(h store.Held) *Network {
	return Find(c.Networks, h)
}

// Find returns the network whose store an address is in, nil if none is known.
func Find(all []Network, h store.Held) *Network {
	for i := range all {
		n := &all[i]
		within := slices.ContainsFunc(n.Ranges, func(p netip.Prefix) bool { return p.Contains(h.Address) })
		if (h.Network == "" || n.Name == h.Network) && (within || len(n.Ranges) == 0 && h.Network != "") {
			return n
		}
	}
	return nil
}

// outside says whether no network here can have given the address out.
func (c *comparison) outside(h store.Held) bool { return c.network(h) == nil }

// AddressesOf are those of a CNI result, of whatever version.
func AddressesOf(result []byte) []netip.Addr {
	var r struct {
		IPs []struct{ Address string }
		IP4 struct{ IP string }
		IP6 struct{ IP string }
	}
	if len(result) == 0 || json.Unmarshal(result, &r) != nil {
		return nil
	}
	texts := []string{r.IP4.IP, r.IP6.IP}
	for _, ip := range r.IPs {
		texts = append(texts, ip.Address)
	}
	var all []netip.Addr
	for _, text := range texts {
		if p, err := netip.ParsePrefix(text); err == nil {
			all = append(all, p.Addr().Unmap())
		}
	}
	return all
}
