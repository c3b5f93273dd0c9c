package delegate

import "strings"

// Settings returns what is known about particular delegates, as settings of the
// guard: a JSON object like the `guard` object of a netconf, "" for nothing. They
// come after the built-in defaults and before what the administrator says.
func Settings(name string) string {
	switch name {
	case "dhcp":
		// The daemon serialises its leases itself, and a server may take its time.
		return `{"lock": {"scope": "none"}}`
	case "static":
		// Nothing is shared: the addresses stand in the configuration.
		return `{"lock": {"scope": "none"}}`
	case "whereabouts":
		// Its ADD waits up to 2 minutes for its own cluster-wide lease. Its DEL throws
		// errors away and exits 0 (whereabouts #119): what it logs tells. An error of the
		// pool's update is overwritten by what follows, but has a line of its own. That
		// an earlier DEL has taken the reservation already is no failure.
		return `{
			"timeout": {"add": "90s"}, "deadline": {"add": "180s"},
			"confirm": {
				"line": "\\[debug\\] IPManagement: ",
				"ok": ", (<nil>|overlappingrangeipreservations\\.whereabouts\\.cni\\.cncf\\.io \"[^\"<]+\" not found)$",
				"reject": "IPAM error updating pool",
				"set": {"log_level": "debug"}
			}
		}`
	}
	return ""
}

// Ranges says how a delegate's object names the ranges that it allocates from,
// where a DEL for all of them may leave some out without a word.
type Ranges struct {
	One   string // the key of a single range
	Many  string // the key of a list of objects, each with a key One
	Stops string // RE2: after writing this to stderr a DEL looks at no further range
}

// RangesOf returns what is known about a delegate's ranges; nil: nothing.
func RangesOf(name string) *Ranges {
	if name == "whereabouts" {
		return &Ranges{One: "range", Many: "ipRanges", Stops: "Failed to find allocation for container|Error performing UpdateOverlapping"}
	}
	return nil
}

// StillHolds reports whether an ADD failed because the attachment already has
// an address (host-local, nerdctl #665, podman #18753). The failed ADD then
// allocated nothing, and to clean up after it would free a living address.
func StillHolds(message string) bool {
	return strings.Contains(message, "duplicate allocation is not allowed")
}
