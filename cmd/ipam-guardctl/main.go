// Command ipam-guardctl is the administrator's tool: it puts ipam-guard in front
// of the plugins of a node and takes it away again, and says what a
// configuration, a setting or a failure comes to. One file per command.
package main

import "os"

// Set when the binary is linked.
var (
	version  = "dev"
	nodeFile = "/etc/ipam-guard/config.json" // the administrator's settings for this node
)

func main() {
	os.Exit(run(streams{in: os.Stdin, out: os.Stdout, err: os.Stderr, env: os.Environ()}, os.Args[1:]))
}
