// Command fakeipam is a delegate for tests: a real process that follows a
// script and writes down how it was called. It promises that what it records
// is what it got, that its leases appear and vanish whole, and that two of its
// runs at a time are noticed. It checks nothing that a real plugin would check.
//
// Its object is `ipam` or the whole netconf, so that it can stand in for a main
// plugin too, and may have:
//
//	"dir"     folder for leases, records and counters; without it FAKEIPAM_DIR
//	"script"  verb or "*" -> one script for always, or a list: the n-th call of
//	          the verb takes the n-th, the last one repeats
//	"pool"    how many addresses there are
//
// DIR/script.json, when present, takes the place of "script". With no script
// ADD is `alloc`, DEL is `free`, VERSION is `version`, all else exits 0. Statements are separated by
// `;`, strings are quoted as in Go:
//
//	alloc, alloc6             take the first free address
//	alloc-once                the same, but fails like host-local if there is one already
//	alloc-same                the address that there is already, or a new one
//	free                      give up all leases of this container and interface
//	free-network              only those taken under this network's name, like host-local
//	gc                        give up this network's leases that the list does not name
//	result                    print the ADD result now; else it is printed at the end
//	print "s", printfile F    print this in its place
//	version                   print what VERSION prints
//	stderr "s"
//	flood N, floodstderr N    print N bytes (200MB, 64KB)
//	exit N ["msg" code ["details"]]
//	                          end at once, with nothing more on stdout, or with an error object
//	error0 "msg" code         an error object and exit 0
//	sleep D                   200ms
//	waitfile F, touch F       F is relative to DIR
//	fork D                    leave a child that keeps every inherited descriptor for D
//	daemon D                  the same in its own session, with stdio on /dev/null
//	ignore SIG                TERM, INT, HUP, PIPE
//	die SIG                   KILL, SEGV, ABRT, TERM
//	panic, killparent
package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/ipam-guard/ipam-guard/internal/fakeipam/record"
)

// exitBroken tells a faulty script or setup from whatever a script may ask for.
const exitBroken = 97

func main() {
	// A plugin has no arguments: with some, this is one of our own children.
	if len(os.Args) > 1 {
		os.Exit(child(os.Args[1:]))
	}
	os.Exit(plugin())
}

func plugin() int {
	fds := inherited() // before anything is opened here
	stdin, err := io.ReadAll(os.Stdin)
	if err != nil {
		return broken("reading stdin", err)
	}
	r, err := newRun(filepath.Base(os.Args[0]), stdin)
	if err != nil {
		return broken("netconf", err)
	}
	overlap, err := r.enter()
	if err != nil {
		return broken("overlap detection", err)
	}
	text, err := r.begin(fds, overlap)
	if err != nil {
		return broken("recording the call", err)
	}
	code, fault := r.script(text)
	if fault != "" {
		code = broken("script", fmt.Errorf("%s in %q", fault, text))
	}
	if err := record.Finish(r.dir, r.n, code, fault); err != nil {
		return broken("recording the end", err)
	}
	return code
}

func broken(what string, err error) int {
	fmt.Fprintf(os.Stderr, "fakeipam: %s: %v\n", what, err)
	return exitBroken
}
