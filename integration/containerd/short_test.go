//go:build integration && !results

package containerd_test

// complete: what matters most is enough.
const complete = false
