//go:build integration && !crash

package crash_test

const defaultEvery = 41 // what fits beside the other integration tests
