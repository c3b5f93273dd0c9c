// Package integration tests ipam-guard with the real parts around it: the
// reference plugins bridge and host-local as they are released, libcni as the
// client, network namespaces of its own. The tests need root and the build tag
// integration (`make integration`).
//
// They promise to leave the machine as it was: every namespace is held by a
// descriptor of the test process and ends with it, every file is in a
// temporary folder, every process in a group that is stopped at the end.
package integration
