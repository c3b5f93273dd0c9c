// Command ipam-guard is a CNI plugin that stands in front of any IPAM plugin.
// Runtimes run it with a verb in CNI_COMMAND and a network configuration on
// stdin; pkg/chain does the work.
package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ipam-guard/ipam-guard/pkg/chain"
)

// Set when the binary is linked.
var (
	version  = "dev"
	nodeFile = "/etc/ipam-guard/config.json" // the administrator's settings for this node
)

const usage = `ipam-guard %s: a CNI plugin that stands in front of an IPAM plugin.

It takes the host lock first and starts the clock afterwards, tries a failed DEL
again, and tells the runtime what the administrator's policy says.

Runtimes run it; in a conflist it takes the place of the ipam object:

  "ipam": {"type": "ipam-guard", "delegate": {the original ipam object}}

By hand, for a look at what it speaks:

  CNI_COMMAND=VERSION ipam-guard

Settings: the netconf's ipam.guard object and %s.
`

func main() { os.Exit(run()) }

func run() int {
	start := time.Now()
	if os.Getenv("CNI_COMMAND") == "" {
		return help()
	}
	// A caller that went away must not kill us before what we allocated is given
	// back. Caught rather than ignored: the delegate would inherit that.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return chain.Call{
		Start: start, Env: os.Environ(),
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		NodeFile: nodeFile, Parent: os.Getppid, Random: rand.Float64, Version: version,
	}.Run(ctx)
}

// help is for people, who run a plugin without a verb.
func help() int {
	if len(os.Args) > 1 && (os.Args[1] == "--version" || os.Args[1] == "version") {
		fmt.Println("ipam-guard", version)
		return 0
	}
	fmt.Fprintf(os.Stderr, usage, version, nodeFile)
	return 0
}
