package delegate

import "strings"

// What is known about particular delegates, as settings of the guard. They come
// after the built-in defaults and before what the administrator says.
var known = map[string]string{
	// The daemon serialises its leases itself, and a server may take its time.
	"dhcp": `{"lock": {"scope": "none"}}`,
	// Nothing is shared: the addresses stand in the configuration.
	"static": `{"lock": {"scope": "none"}}`,
	// Its ADD waits up to 2 minutes for its own cluster-wide lease.
	"whereabouts": `{"timeout": {"add": "90s"}, "deadline": {"add": "180s"}}`,
}

// Settings returns what is built in for a delegate's type: a JSON object like
// the `guard` object of a netconf, nil if nothing is.
func Settings(name string) []byte {
	text, ok := known[name]
	if !ok {
		return nil
	}
	return []byte(text)
}

// StillHolds reports whether an ADD failed because the attachment already has
// an address (host-local, nerdctl #665, podman #18753). The failed ADD then
// allocated nothing, and to clean up after it would free a living address.
func StillHolds(message string) bool {
	return strings.Contains(message, "duplicate allocation is not allowed")
}
