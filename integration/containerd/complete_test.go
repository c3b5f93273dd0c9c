//go:build results

package containerd_test

// complete: all that there is, however long it takes.
const complete = true
