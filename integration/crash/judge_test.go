//go:build crash || integration

package crash_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipam-guard/ipam-guard/pkg/journal"
)

// variant is what becomes of a node after a kill.
type variant struct {
	gone bool // the victims' network namespace
	aged bool // ten minutes have passed
}

const tenMinutes = int64(11 * time.Minute / time.Millisecond)

// canAge says whether the node has been up for long enough.
func canAge() bool { return journal.Uptime() > tenMinutes }

func (c *cell) journal() *journal.Journal {
	return &journal.Journal{Dir: c.StateDir, Node: journal.Here()}
}

// record is a container's record, nil without one. It has no writer.
func (c *cell) record(container string) *journal.Record {
	c.T.Helper()
	if _, err := os.Lstat(c.recordFile(container)); err != nil {
		return nil
	}
	// A child that is just being started would have the lock, too, until it
	// executes something.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	e := c.journal().Try(journal.Key{Network: "testnet", Container: container, IfName: "eth0", Delegate: "fake"})
	if e == nil {
		if data, _ := os.ReadFile(c.recordFile(container)); string(data) == "{]\n" {
			return nil // our own
		}
		c.T.Fatalf("the record of %s is locked by somebody, or broken", container)
	}
	defer e.Close()
	r := e.Record
	return &r
}

// age notes that the netns of an attachment was seen to be gone ten minutes ago.
func (c *cell) age(container string) {
	f, err := os.OpenFile(c.recordFile(container), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		c.T.Fatal(err)
	}
	defer f.Close()
	if _, err := fmt.Fprintf(f, "{\"goneSince\":%d}\n", max(1, journal.Uptime()-tenMinutes)); err != nil {
		c.T.Fatal(err)
	}
}

// due is the table of docs/guarantees.md for "anyone".
func due(r *journal.Record, v variant) bool {
	switch {
	case r.State == journal.Adding, r.State == journal.Releasing && r.Owed == journal.Now:
		return true
	case r.State == journal.Releasing:
		return v.gone || r.Gone
	}
	long := r.GoneSince > 0 && journal.Uptime()-r.GoneSince >= tenMinutes // since before the kill
	return v.gone && (v.aged || long)
}

// quiet waits for the end of what a kill has left running.
func (c *cell) quiet() {
	syscall.ForkLock.RLock() // or a child that is just being started has the lock, too
	defer syscall.ForkLock.RUnlock()
	f, err := os.OpenFile(filepath.Join(c.FakeDir, "running"), os.O_RDWR|os.O_CREATE, 0o666)
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		c.T.Fatal(err)
	}
	_ = f.Close()
}

// judge looks at what a kill has left, lets it be dealt with, and looks again.
func (c *cell) judge(op operation, v variant) {
	c.quiet()
	c.SetScript(c.T, nil)
	c.wantOwned(op)
	for _, container := range op.victims {
		r := c.record(container)
		if v.gone {
			c.SetNetns(c.T, container, "")
		}
		if v.aged && r != nil && r.State == journal.Attached {
			c.age(container)
		}
		if wait := c.turn(container) - journal.Uptime(); v.aged && wait > 0 {
			time.Sleep(time.Duration(wait+1) * time.Millisecond)
		}
	}
	before, records, early := c.leasesOf(), map[string]*journal.Record{}, map[string]bool{}
	for _, container := range op.victims {
		if r := c.record(container); r != nil {
			records[container], early[container] = r, c.turn(container) > journal.Uptime()
		}
	}
	c.others(op, len(records)+1)
	after := c.leasesOf()
	for _, container := range op.victims {
		if !early[container] {
			c.wantDealtWith(op, container, records[container], v, before[container], after[container])
		}
	}
	c.wantOwned(op)
	c.wantAllReleased(op)
}

// others are ordinary pods that come and go.
func (c *cell) others(op operation, count int) {
	for i := range count {
		name := fmt.Sprintf("other%d", i)
		r := c.Run(c.T, "ADD", name, c.opts())
		if r.RC != 0 && !(op.tight && strings.Contains(r.Stdout, "no IP addresses available")) {
			c.T.Errorf("ADD of %s: %+v", name, r)
		}
		if r := c.Run(c.T, "DEL", name, c.opts()); r.RC != 0 {
			c.T.Errorf("DEL of %s: %+v", name, r)
		}
		c.SetNetns(c.T, name, "")
	}
}

// leasesOf are the addresses of each container.
func (c *cell) leasesOf() map[string]string {
	of := map[string]string{}
	for addr, owner := range c.Leases(c.T) {
		container, _, _ := strings.Cut(owner, "/")
		of[container] = strings.TrimSpace(of[container] + " " + addr)
	}
	return of
}

// wantOwned: no address without an owner or a record, and who lives has its own.
func (c *cell) wantOwned(op operation) {
	c.T.Helper()
	leases := c.leasesOf()
	for container, addr := range c.living {
		if leases[container] != addr {
			c.T.Errorf("%s lives and has %q of %s", container, leases[container], addr)
		}
	}
	for container, addrs := range leases {
		_, lives := c.living[container]
		excused := op.lost && slices.Contains(op.victims, container) // it never had one
		if !lives && !excused && c.record(container) == nil {
			c.T.Errorf("LEAK: %s of %s has neither an owner nor a record", addrs, container)
		}
	}
	c.NoOverlap(c.T)
}

// turn is when a record's turn comes in the queue: a release that failed is
// tried again after a while, and a kill just before that is noted in the record
// leaves the note in the queue.
func (c *cell) turn(container string) (due int64) {
	marks, _ := filepath.Glob(filepath.Join(c.StateDir, "queue", "fake", "p-*"))
	for _, m := range marks {
		if to, _ := os.Readlink(m); strings.Contains(to, "/"+container+"/") {
			at, err := strconv.ParseInt(strings.Split(filepath.Base(m), "-")[2], 16, 64)
			if err != nil {
				c.T.Fatal(err)
			}
			due = max(due, at)
		}
	}
	return due
}

// wantDealtWith: what was due is released, and nothing else.
func (c *cell) wantDealtWith(op operation, container string, r *journal.Record, v variant, before, after string) {
	c.T.Helper()
	now := c.record(container)
	switch {
	case r == nil && after != before:
		c.T.Errorf("%s had no record, and %q became %q", container, before, after)
	case r == nil && after != "" && !op.lost:
		c.T.Errorf("LEAK: %s has %q and no record", container, after)
	case r == nil:
	case !due(r, v) && (now == nil || after != before):
		c.T.Errorf("%s was not to be released (%s %s): %q became %q, record %v", container, r.State, r.Owed, before, after, now != nil)
	case due(r, v) && (now != nil || after != ""):
		c.T.Errorf("LATE: %s was to be released (%s %s, due %d, now %d): it has %q, record %v", container, r.State, r.Owed, r.Due, journal.Uptime(), after, now != nil)
	}
}

// wantAllReleased: what the runtime asks for at last, all of it is done.
func (c *cell) wantAllReleased(op operation) {
	c.T.Helper()
	asked := op.victims
	if op.lives {
		asked = []string{op.container}
	}
	leases := c.leasesOf()
	for _, container := range asked {
		if leases[container] == "" && c.record(container) == nil {
			continue
		}
		if r := c.Run(c.T, "DEL", container, c.opts()); r.RC != 0 {
			c.T.Errorf("the last DEL of %s: %+v", container, r)
		}
		delete(c.living, container)
	}
	for container, addrs := range c.leasesOf() {
		if _, lives := c.living[container]; !lives {
			c.T.Errorf("LEAK: after its DEL, %s has %s", container, addrs)
		}
	}
	records, _ := filepath.Glob(filepath.Join(c.StateDir, "records", "*", "*"))
	if len(records) != len(c.living) {
		c.T.Errorf("records left: %q", records)
	}
	c.NoOverlap(c.T)
}
