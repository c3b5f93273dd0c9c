// Package crash kills ipam-guard and looks at what is left.
//
// It promises to try, with the plugin as it is shipped and a scripted delegate,
// a SIGKILL before every system call that the guard's own process makes on
// files, locks and processes, from the first one that touches the node on to
// its end, and before those of the process that becomes the delegate; then of
// the guard, its parent and its delegate at moments of the delegate's life.
// After each kill it puts the node into one of four situations (the victim's
// network namespace there or gone, gone for ten minutes or not), lets ordinary
// pods come and go, as many as records are left and one more, and asks after
// each: is there an address without an owner or a record, was one released that
// lives, was one not released that was due, did two delegates run at once.
//
// The one rule that it goes by is the table of docs/guarantees.md, written down
// a second time in judge_test.go.
//
//	make crash                                     all of it
//	CRASH_ONLY='^DEL replays$' make crash          some operations
//	CRASH_EVERY=7 CRASH_SEED=3 make crash          every 7th cell, from the 3rd on
//
// `make integration` runs every 41st. The kills come from a small tracer
// (tracer_test.go) and not from strace: that counts the calls of each thread by
// themselves, and those of the delegate too, so that neither the call nor the
// victim would be known. Where the kernel refuses ptrace, the tests of single
// system calls are skipped and say so.
package crash
