// Package kubernetes tests ipam-guard in front of the real whereabouts, which
// keeps its addresses in a real Kubernetes API: kube-apiserver and etcd on
// loopback, with a proxy in between that makes requests stall, fail or be
// answered late.
//
// It promises to try each fault bare and guarded, side by side, to say what was
// left behind at once and after the API was well again, and to write what it
// measured to docs/results-whereabouts.md, where all figures and tables are the
// test's.
//
//	make integration-kubernetes          all of it, and the document
//	go test -short -tags kubernetes ./integration/kubernetes/    three faults and a small storm
//
// The programs are built from their modules into a cache outside the tree the
// first time (about 20 minutes of processor time), see internal/parts;
// IPAM_GUARD_TESTS_CACHE moves the cache, IPAM_GUARD_TESTS_BUILD_TIME (a
// duration) says how long the build may take. The short form says so and passes
// where it has none and can't build them in that time; else that is a failure.
package kubernetes
