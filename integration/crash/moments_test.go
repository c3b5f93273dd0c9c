//go:build crash || integration

package crash_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// stand keeps the delegate where the kill is to meet it, until there is the file
// "go".
const stand = "touch here; waitfile go; "

// moments are operations whose delegate stands still somewhere.
func moments() []operation {
	at := func(op operation, name string, s script) operation {
		op.name, op.script = op.name+": "+name, s
		return op
	}
	ops := map[string]operation{}
	for _, op := range operations() {
		ops[op.name] = op
	}
	return []operation{
		at(ops["ADD"], "before it allocates", script{"ADD": stand + "alloc"}),
		at(ops["ADD"], "after it allocated", script{"ADD": "alloc; " + stand}),
		at(ops["ADD rolled back"], "in the rollback, before it frees", script{"ADD": "alloc; " + broken, "DEL": stand + "free"}),
		at(ops["ADD rolled back"], "in the rollback, after it freed", script{"ADD": "alloc; " + broken, "DEL": "free; " + stand}),
		at(ops["ADD repeated"], "in the delegate", script{"ADD": "alloc-same; " + stand}),
		at(ops["ADD over a pending release"], "in the release", script{"DEL": stand + "free"}),
		at(ops["ADD over a pending release"], "after the release", script{"ADD": "alloc; " + stand}),
		at(ops["DEL"], "before it frees", script{"DEL": stand + "free"}),
		at(ops["DEL"], "after it freed", script{"DEL": "free; " + stand}),
		at(ops["DEL without a record"], "before it frees", script{"DEL": stand + "free"}),
		at(ops["DEL deferred"], "in the delegate", script{"DEL": stand + broken}),
		at(ops["DEL replays"], "in the replay, before it frees", script{"DEL": []string{"free", stand + "free"}}),
		at(ops["DEL replays"], "in the replay, after it freed", script{"DEL": []string{"free", "free; " + stand}}),
		at(ops["DEL releases an attachment"], "before it frees", script{"DEL": []string{"free", stand + "free"}}),
		at(ops["GC, pending release"], "in the release", script{"DEL": stand + "free", "GC": "gc"}),
		at(ops["GC, pending release"], "in the delegate's GC", script{"DEL": "free", "GC": stand + "gc"}),
	}
}

// whoDies are those that a kill meets while the delegate stands there.
var whoDies = map[string]func(c *cell, p *guardtest.Proc){
	"the guard":                  func(c *cell, p *guardtest.Proc) { killPid(c, p.PluginPid(c.T)) },
	"its parent":                 func(_ *cell, p *guardtest.Proc) { p.Kill() },
	"its delegate":               func(c *cell, _ *guardtest.Proc) { killPid(c, c.standing()) },
	"the guard, then its parent": func(c *cell, p *guardtest.Proc) { killPid(c, p.PluginPid(c.T)); p.Kill() },
	"its delegate, then it":      func(c *cell, p *guardtest.Proc) { killPid(c, c.standing()); killPid(c, p.PluginPid(c.T)) },
}

func killPid(c *cell, pid int) {
	if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		c.T.Fatalf("pid %d: %v", pid, err)
	}
}

// standing is the delegate that stands at "here".
func (c *cell) standing() int {
	calls := c.Calls(c.T)
	return calls[len(calls)-1].PID
}

func TestKilledWhileTheDelegateRuns(t *testing.T) {
	every, seed := sample(t)
	var table tally
	t.Cleanup(func() { t.Logf("every %d. cell, from %d on:\n\n%s", every, seed, &table) })
	number := 0
	for _, m := range moments() {
		for _, who := range []string{"the guard", "its parent", "its delegate", "the guard, then its parent", "its delegate, then it"} {
			for _, v := range variants(m, "clone", 0) {
				if number++; !wanted(m.name) || number%every != seed%every {
					continue
				}
				t.Run(m.name+"/"+who+"/"+v.String(), func(t *testing.T) {
					t.Parallel()
					defer func() { table.add(m.name, who, !t.Failed()) }()
					killAt(t, m, who, v)
				})
			}
		}
	}
}

func killAt(t *testing.T, op operation, who string, v variant) {
	c := newCell(t, op)
	o := c.ask(op)
	o.Runtime = true
	p := c.Start(t, op.verb, op.container, o)
	guard := p.PluginPid(t)
	guardtest.Eventually(t, "the delegate at its place", func() bool {
		_, err := os.Lstat(filepath.Join(c.FakeDir, "here"))
		return err == nil
	})
	whoDies[who](c, p)
	c.Touch(t, "go")
	r := p.Wait(t)
	guardtest.Eventually(t, "the end of the guard", func() bool { return !guardtest.Alive(guard) })
	if op.verb == "ADD" && r.RC == 0 {
		t.Fatalf("nobody was killed: %+v", r)
	}
	c.judge(op, v)
}

// In the queue for the host lock nothing has been done yet.
func TestKilledInTheQueue(t *testing.T) {
	every, seed := sample(t)
	var table tally
	t.Cleanup(func() { t.Logf("every %d. cell, from %d on:\n\n%s", every, seed, &table) })
	number := 0
	for _, op := range operations() {
		for _, who := range []string{"the guard", "its parent"} {
			for _, v := range variants(op, "clone", 0) {
				if number++; !wanted(op.name) || number%every != seed%every {
					continue
				}
				t.Run(op.name+"/"+who+"/"+v.String(), func(t *testing.T) {
					t.Parallel()
					defer func() { table.add(op.name, who, !t.Failed()) }()
					killQueued(t, op, who, v)
				})
			}
		}
	}
}

func killQueued(t *testing.T, op operation, who string, v variant) {
	c := newCell(t, op)
	release := c.HoldLock(t, c.LockPath("delegate-fake"), time.Hour)
	before := len(c.Calls(t))
	o := c.ask(op)
	o.Runtime = true
	p := c.Start(t, op.verb, op.container, o)
	guard := p.PluginPid(t)
	guardtest.Eventually(t, "a guard in the queue", func() bool { return c.queued(guard) })
	whoDies[who](c, p)
	if who == "the guard" && len(c.Calls(t)) != before {
		t.Error("the delegate was run without the lock")
	}
	release()
	p.Wait(t)
	guardtest.Eventually(t, "the end of the guard", func() bool { return !guardtest.Alive(guard) })
	c.judge(op, v)
}

// queued says whether a process has the lock file open.
func (c *cell) queued(pid int) bool {
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	return slices.ContainsFunc(fds, func(fd string) bool {
		target, _ := os.Readlink(fd)
		return target == c.LockPath("delegate-fake")
	})
}
