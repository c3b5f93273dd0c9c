package chain

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
	for name := range keys {
		names = append(names, name)
	}
	return names
}

// ForDelegate returns what the delegate would get on stdin, and the problems
// found; nil if it can't be run at all.
func ForDelegate(stdin []byte) ([]byte, []Problem) {
	c, fatal := readNetconf(stdin, "")
	if fatal != nil {
		return nil, c.problems
	}
	return c.forDelegate(), c.problems
}
