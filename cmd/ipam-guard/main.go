// Command ipam-guard is a CNI plugin that stands in front of any IPAM plugin.
// Runtimes run it with a verb in CNI_COMMAND and a network configuration on
// stdin; pkg/chain does the work.
package main

import (
	"fmt"
	"math/rand/v2"
	"os"
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

Runtimes run it; in a conflist it takes the place of the ipam object, or of a
whole plugin; or it is installed under an IPAM plugin's name, in a folder that
comes earlier in CNI_PATH, and the conflist stays as it is:

  "ipam": {"type": "ipam-guard", "delegate": {the original ipam object}}

By hand, for a look at what it speaks:

  CNI_COMMAND=VERSION ipam-guard

Settings: the "guard" object beside "delegate", and %s.
`

func main() { os.Exit(onLargeStack(len(os.Args))) }

// onLargeStack runs the plugin on a stack of 64 KiB from the start. A stack that
// grows there step by step touches the pages of each size on its way, and of the
// tables that say how to move it: some 10 page faults for every call.
//
//go:noinline
func onLargeStack(args int) int {
	const room = 48 << 10
	if args < 0 { // never: it is the frame that counts
		var frame [room]byte
		return int(touch(frame[:]))
	}
	return run()
}

//go:noinline
func touch(b []byte) byte { return b[len(b)/2] }

func run() int {
	start := time.Now()
	if os.Getenv("CNI_COMMAND") == "" {
		return help()
	}
	return chain.Call{
		Start: start, Name: os.Args[0], Env: os.Environ(),
		Stdin: descriptor(0), Stdout: descriptor(1), Stderr: descriptor(2),
		NodeFile: nodeFile, Parent: os.Getppid, Random: rand.Float64, Version: version, Self: os.Executable,
	}.Run(new(untilSignal))
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
