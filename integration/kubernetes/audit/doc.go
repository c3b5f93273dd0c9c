// Package audit has no code outside its tests: ipam-guardctl audit against real
// whereabouts pools in a real Kubernetes API. What was planted is found, and
// nothing else; what is leaked is released by whereabouts' own DEL. The programs
// are those of the package above.
package audit
