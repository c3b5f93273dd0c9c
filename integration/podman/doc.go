// Package podman has no code outside its tests: containers through podman 4 and
// its CNI backend, with the guard and without. It asks for a release once and
// never again, and it starts a container with the same id after a reboot.
// It needs root, and fetches podman once: see make integration, and make
// results for the complete table.
package podman
