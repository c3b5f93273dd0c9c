package main_test

import (
	"testing"
	"time"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
	"github.com/ipam-guard/ipam-guard/pkg/journal"
)

// Case 34: the pool is exhausted while releases are owed: these come first, then
// the ADD has its second try (danm #256, azure-container-networking #2138).
func TestExhaustedWhileReleasesAreOwed(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	o := ask(nil, nil)
	o.Conf.Delegate = Object{"pool": 2}
	owe(t, n, "c1", o)
	owe(t, n, "c2", o)

	// Not while their interfaces may still answer for the addresses.
	e := n.Run(t, "ADD", "c3", o).Error(t)
	has(t, e.Msg, "no IP addresses available")
	wantLeases(t, n, "c1/eth0", "c2/eth0")

	n.SetNetns(t, "c1", "")
	n.SetNetns(t, "c2", "")
	n.Run(t, "ADD", "c3", o).OK(t)
	wantLeases(t, n, "c3/eth0")
	wantStates(t, n, "c3/eth0 attached")
	n.NoOverlap(t)

	// With nothing owed it is an error like any other, after one ADD.
	n.Run(t, "ADD", "c4", o).OK(t)
	n.Run(t, "ADD", "c5", o).Error(t)
	if have := len(callsOf(t, n, "ADD", "c5")); have != 1 {
		t.Errorf("%d ADDs of the delegate", have)
	}
	wantStates(t, n, "c3/eth0 attached", "c4/eth0 attached")
}

// Case 34, a backoff is no reason to refuse a pod, another network's releases
// are none to try.
func TestExhaustedSetsBackoffAside(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	o := ask(nil, nil)
	o.Conf.Delegate = Object{"pool": 1}
	owe(t, n, "c1", o)
	n.SetNetns(t, "c1", "")
	eachRecord(t, journalOf(n), func(e *journal.Entry) {
		if err := e.Update(func(r *journal.Record) { r.Due = journal.Uptime() + time.Hour.Milliseconds() }); err != nil {
			t.Fatal(err)
		}
	})
	foreign := o
	foreign.Conf.Name = "another"
	n.Run(t, "ADD", "c2", foreign).Error(t)
	wantLeases(t, n, "c1/eth0")
	n.Run(t, "ADD", "c2", o).OK(t)
	wantLeases(t, n, "c2/eth0")
	wantStates(t, n, "c2/eth0 attached")
}

// Case 34, a release that waits in the same queue is let through first.
func TestExhaustedWhileAReleaseIsOnItsWay(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	lock := n.LockPath("delegate-fake")
	o := ask(nil, nil)
	o.Conf.Delegate = Object{"pool": 1}
	n.Run(t, "ADD", "c0", o).OK(t)
	for _, pair := range [][2]string{{"c0", "c1"}, {"c1", "c2"}, {"c2", "c3"}, {"c3", "c4"}} {
		release := n.HoldLock(t, lock, time.Hour)
		add := n.Start(t, "ADD", pair[1], o)
		awaitQueue(t, add, lock)
		del := n.Start(t, "DEL", pair[0], o)
		awaitQueue(t, del, lock)
		release()
		add.Wait(t).OK(t)
		del.Wait(t).OK(t)
		wantLeases(t, n, pair[1]+"/eth0")
	}
	wantStates(t, n, "c4/eth0 attached")
	n.NoOverlap(t)
}
