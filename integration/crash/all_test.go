//go:build crash

package crash_test

const defaultEvery = 1
