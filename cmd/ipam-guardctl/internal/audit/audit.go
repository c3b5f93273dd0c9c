// Package audit compares what delegates hold with what runs and with the guard's
// records, and releases what nobody uses.
//
// It promises never to take what is in use for leaked: each finding says why,
// and what can't be known is no finding. What it releases has been looked at
// twice, with a pause between the looks and its record locked through it. Where
// the facts come from is left to others; Compare does no I/O.
package audit

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ipam-guard/ipam-guard/cmd/ipam-guardctl/internal/store"
	"github.com/ipam-guard/ipam-guard/pkg/chain"
	"github.com/ipam-guard/ipam-guard/pkg/journal"
)

// Kind says what is wrong about an address.
type Kind string

// What there is to find.
const (
	Leaked      Kind = "leaked"      // held for a container that is gone
	Empty       Kind = "empty"       // held for nobody: its writer was killed
	Foreign     Kind = "foreign"     // no reservation at all, or none of this node's networks
	Duplicate   Kind = "duplicate"   // held twice, or a second address of one attachment
	Unheld      Kind = "unheld"      // a living attachment has it, and its delegate would give it to another
	Reservation Kind = "reservation" // an OverlappingRangeIPReservation without an address in a pool
)

// Network is one that a delegate keeps addresses for, and all that the delegate's
// DEL needs to know.
type Network struct {
	Name     string
	Delegate string         // its type
	Ranges   []netip.Prefix // nil: not known
	Sets     int            // how many addresses of it an attachment gets; 0: not known
	Facts    journal.Facts  // of its DEL
}

// Running is what lives, as the runtimes tell it.
type Running struct {
	IDs  map[string]bool // containers: CNI_CONTAINERID
	Pods map[string]bool // namespace/name of those that are ready
}

// Has says whether a container is listed. Lists for people cut names to their
// first 12 or 13 digits.
func (r Running) Has(container string) bool {
	for _, short := range []int{12, 13} {
		if len(container) > short && r.IDs[container[:short]] {
			return true
		}
	}
	return r.IDs[container]
}

// Facts are what is compared.
type Facts struct {
	Now       time.Time
	Networks  []Network
	Held      []store.Held
	Records   []chain.Held
	StateDirs map[journal.Key]string // of the records
	Running   Running
	InUse     map[netip.Addr]string // what interfaces of this node have, and where
	Pods      map[string]bool       // namespace/name of all pods of the cluster; nil: not known
}

// Finding is one thing that is wrong.
type Finding struct {
	Kind      Kind   `json:"kind"`
	Delegate  string `json:"delegate"`
	Network   string `json:"network,omitempty"`
	Address   string `json:"address,omitempty"`
	Container string `json:"container,omitempty"`
	IfName    string `json:"ifname,omitempty"`
	Pod       string `json:"pod,omitempty"`
	Place     string `json:"place"` // where it stands: a path, an object
	Why       string `json:"why"`
	Mend      string `json:"mend,omitempty"`   // what a person can type
	Status    string `json:"status,omitempty"` // of a release
	StatusWhy string `json:"statusWhy,omitempty"`

	NoPod    bool        `json:"-"` // leaked, since the cluster has no such pod
	Held     store.Held  `json:"-"`
	Record   *chain.Held `json:"-"` // nil without one
	StateDir string      `json:"-"` // where that is
}

// Releasable says whether a release may be tried now: it is leaked, and if it has
// no record it is old enough.
func (f Finding) Releasable(now time.Time) bool {
	return f.Kind == Leaked && (f.Record != nil || !young(f.Held, now))
}

// Patience is how old an address without a record must be before it may be
// released: a pod whose ADD is under way is in no runtime's list. kubelet gives a
// pod's start 4 minutes, CRI-O 5.
const Patience = 10 * time.Minute

// Compare returns what is wrong, in the order of the addresses.
func Compare(f Facts) []Finding {
	c := newComparison(f)
	for _, h := range f.Held {
		c.held(h)
	}
	c.duplicates()
	for i := range f.Records {
		c.unheld(&f.Records[i])
	}
	slices.SortFunc(c.found, func(a, b Finding) int {
		return cmp.Or(a.Held.Address.Compare(b.Held.Address), strings.Compare(a.Place, b.Place), strings.Compare(a.Container, b.Container))
	})
	return c.found
}

// Both returns the findings of the second look that the first has too: what came
// or went in between is none.
func Both(first, second []Finding) []Finding {
	type identity struct{ kind, address, container, place string }
	id := func(f Finding) identity { return identity{string(f.Kind), f.Address, f.Container, f.Place} }
	seen := map[identity]bool{}
	for _, f := range first {
		seen[id(f)] = true
	}
	return slices.DeleteFunc(second, func(f Finding) bool { return !seen[id(f)] })
}
