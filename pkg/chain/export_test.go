package chain

import "github.com/ipam-guard/ipam-guard/pkg/conflist"

// For the tests of this package's inner parts.
var (
	SettingsFor = settingsFor
	Reworded    = reworded
	AsFileName  = asFileName
	Builtin     = builtin
)

// Keys lists the names of all settings.
func Keys() []string {
	var names []string
	for _, key := range keys {
		names = append(names, key.name)
	}
	return names
}

// ForDelegate returns what the delegate would get on stdin, and the problems
// found; nil if it can't be run at all.
func ForDelegate(stdin []byte) ([]byte, []Problem) {
	c, fatal := readNetconf(stdin, "", role{name: ownName})
	if fatal != nil {
		return nil, c.problems
	}
	return c.forDelegate(), c.problems
}

// The guard's own words for the specification, to be held against the CNI
// library's.
var (
	LegalName        = legalName
	IllegalInterface = illegalInterface
	AtLeast          = atLeast
	Versions         = versions
	AddressBits      = addressBits
	LocalLines       = localLines
)

// Addresses counts the addresses of a result.
func Addresses(result []byte, version string) (int, error) {
	o, err := conflist.Parse(result)
	if err != nil {
		return 0, err
	}
	return addresses(o, version)
}
