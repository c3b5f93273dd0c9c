package main

import (
	"fmt"
	"path/filepath"
)

// The variants, by the names that the report gives them. Ratios are against bare and floor.
const (
	bare    = "host-local, bare"
	wrapped = "C wrapper"
	floor   = "Go floor"
	guarded = "ipam-guard"
)

// A variant is one way to have host-local give out an address.
type variant struct {
	name    string
	argv    []string // what the runtime would start; the wrappers take their delegate as an argument
	cniPath string
	network string
	netconf string
	dataDir string // host-local's: an address is reserved as dataDir/network/ADDRESS
}

// variants gives each one a network and a dataDir of its own below tmp, and otherwise the same netconf.
func variants(bin, tmp string) []variant {
	cniPath := filepath.Join(bin, "cni")
	hostLocal := filepath.Join(cniPath, "host-local")
	return []variant{
		plain(bare, tmp, "bare", cniPath, hostLocal),
		plain(wrapped, tmp, "wrapper", cniPath, filepath.Join(bin, "bench", "wrapper"), hostLocal),
		plain(floor, tmp, "floor", cniPath, filepath.Join(bin, "bench", "floor"), hostLocal),
		guard(tmp, "guard", cniPath, filepath.Join(bin, "ipam-guard")),
	}
}

func plain(name, tmp, network, cniPath string, argv ...string) variant {
	v := variant{name: name, argv: argv, cniPath: cniPath, network: network, dataDir: filepath.Join(tmp, network)}
	v.netconf = netconf(network, hostLocalIPAM(v.dataDir))
	return v
}

// guard stands in ipam position, with the settings a node has but for the folders, which lie below tmp so that no run
// meets another's.
func guard(tmp, network, cniPath string, argv ...string) variant {
	v := plain(guarded, tmp, network, cniPath, argv...)
	folder := func(name string) string { return filepath.Join(tmp, "ipam-guard", name) }
	v.netconf = netconf(network, fmt.Sprintf(
		`{"type": "ipam-guard", "delegate": %s, "guard": {"stateDir": %q, "lockDir": %q, "log": {"file": %q}}}`,
		hostLocalIPAM(v.dataDir), folder("state"), folder("lock"), folder("ipam-guard.log")))
	return v
}

func netconf(network, ipam string) string {
	return fmt.Sprintf(`{"cniVersion": "1.0.0", "name": %q, "type": "bridge", "bridge": "cni0", "ipam": %s}`, network, ipam)
}

func hostLocalIPAM(dataDir string) string {
	return fmt.Sprintf(`{"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": "10.89.0.0/16"}]]}`, dataDir)
}
