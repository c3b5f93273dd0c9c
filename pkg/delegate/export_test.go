package delegate

// WithoutPidFD runs c as on a kernel that has no pidfds.
func WithoutPidFD(c Cmd) Cmd {
	c.noPidFD = true
	return c
}
