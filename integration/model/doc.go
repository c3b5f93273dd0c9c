// Package model runs random sequences of what a runtime, a kernel and a bad day
// do to the guard (ADD, DEL and GC, twice and at once, SIGKILL, reboot,
// delegates that fail, hang and heal, netns that come and go) against a small
// model of who owns what. The real binary runs in front of the scripted
// delegate and of the real host-local. The tests need a build tag, integration
// or crash, and no root; MODEL_RUNS says how many sequences.
//
// A sequence that fails is printed as a command that runs it again. The moments
// at which processes are killed and meet are the machine's: it may take a few
// runs (-count) to see the failure again, and -shrink to see what of it is
// needed.
package model
