//go:build results

package podman_test

// complete: all that there is, however long it takes.
const complete = true
