// Package store reads where delegates keep the addresses that they have given
// out: host-local's files, and whereabouts' objects in the Kubernetes API.
//
// It promises to change nothing, and that what can't be read is an error and
// not an empty store. What a finding is, and what is done about it, is left to
// others.
package store

import (
	"net/netip"
	"time"
)

// Held is an address that a delegate has given out, or something in its store
// that is none.
type Held struct {
	Network   string
	Delegate  string     // the type of who keeps it
	Address   netip.Addr // the zero Addr for what is no address
	Container string     // "" where the store doesn't say
	IfName    string     // "" in reservations of older versions
	Pod       string     // namespace/name, where the store says
	Place     string     // a path, or pool and offset: where a person finds it
	Since     time.Time  // zero where the store doesn't say
	Second    bool       // whereabouts' OverlappingRangeIPReservation: a second mark on an address
}

// Empty says that nobody is named as the owner.
func (h Held) Empty() bool { return h.Container == "" && h.Pod == "" }
