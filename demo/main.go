// Command demo shows on one machine, in half a minute, what ipam-guard is for:
// many pods attached at once through the real bridge and host-local, and
// detached at once while the delegate hangs, dies and is refused its
// connection; and what is not released by then is released by the calls of other
// pods. It ends with the number of addresses that leaked, and exits 1 if that is
// not 0.
//
// It promises to touch nothing of the machine's own network and to leave
// nothing behind: the node and its pods are network namespaces that end with
// this process, all files are in one temporary folder. Without root there are
// no namespaces: then the guard is called as the runtime's only plugin, with
// the real host-local behind it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// maxPods is what a laptop takes at once.
const maxPods = 200

func main() { os.Exit(run()) }

func run() int {
	pods := flag.Int("pods", 20, "how many pods are attached and detached at once")
	bin := flag.String("bin", "bin", "the folder with ipam-guard, cni/bridge and cni/host-local")
	flag.Parse()
	if *pods < 2 || *pods > maxPods {
		fmt.Fprintf(os.Stderr, "demo: --pods is from 2 to %d\n", maxPods)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	out := newPage(os.Stdout)
	leaked, err := demonstrate(ctx, out, *bin, *pods)
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		return 1
	}
	out.verdict(leaked)
	if leaked > 0 {
		return 1
	}
	return 0
}

// demonstrate sets up the node, tells the story and takes the node down again.
func demonstrate(ctx context.Context, out *page, bin string, pods int) (leaked int, err error) {
	n, err := newNode(bin, pods)
	if err != nil {
		return 0, err
	}
	defer n.close()
	return (&story{page: out, node: n}).tell(ctx)
}
