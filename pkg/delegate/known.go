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
		// Its ADD waits up to 2 minutes for its own cluster-wide lease.
		return `{"timeout": {"add": "90s"}, "deadline": {"add": "180s"}}`
	}
	return ""
}

// StillHolds reports whether an ADD failed because the attachment already has
// an address (host-local, nerdctl #665, podman #18753). The failed ADD then
// allocated nothing, and to clean up after it would free a living address.
func StillHolds(message string) bool {
	return strings.Contains(message, "duplicate allocation is not allowed")
}
