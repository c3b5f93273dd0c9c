//go:build integration && !results

package podman_test

// complete: what matters most is enough.
const complete = false
