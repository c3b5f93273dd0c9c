//go:build crash || integration

package crash_test

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// operation is what a kill meets.
type operation struct {
	name            string
	verb, container string
	victims         []string // may not live after it: what they hold is owed
	prepare         func(*cell)
	script          script // of the delegate, from prepare's end until the kill
	delegate, guard object // parts of the netconf
	top             object
	lost            bool // its record isn't there to begin with
	tight           bool // the pool is full: other pods may find no address
	goneAlready     bool // the netns can't be kept: it is gone before
	lives           bool // the one that it is about lives on, whatever happens
}

// long makes a record that is written anew at each change.
var long = object{"padding": strings.Repeat("x", 300<<10)}

func operations() []operation {
	pod, both := []string{"pod"}, []string{"pod", "next"}
	attach := func(c *cell) { c.attach("pod") }
	owe := func(c *cell) { c.owe("pod") }
	return []operation{
		{name: "ADD", verb: "ADD", container: "pod", victims: pod},
		{name: "ADD, long record", verb: "ADD", container: "pod", victims: pod, top: long},
		{name: "ADD repeated", verb: "ADD", container: "pod", lives: true, script: script{"ADD": "alloc-same"},
			prepare: func(c *cell) { c.live("pod") }},
		{name: "ADD repeated, refused", verb: "ADD", container: "pod", lives: true, script: script{"ADD": "alloc-once"},
			prepare: func(c *cell) { c.live("pod") }},
		{name: "ADD over a pending release", verb: "ADD", container: "pod", victims: pod, prepare: owe},
		{name: "ADD, pool exhausted", verb: "ADD", container: "next", victims: both, tight: true, goneAlready: true,
			delegate: object{"pool": 2}, prepare: func(c *cell) { c.owe("pod"); c.SetNetns(c.T, "pod", "") }},
		{name: "ADD rolled back", verb: "ADD", container: "pod", victims: pod, script: script{"ADD": "alloc; " + broken, "DEL": "free"}},
		{name: "ADD, rollback fails", verb: "ADD", container: "pod", victims: pod, script: script{"ADD": "alloc; " + broken, "DEL": broken}},
		{name: "DEL", verb: "DEL", container: "pod", victims: pod, prepare: attach},
		{name: "DEL, long record", verb: "DEL", container: "pod", victims: pod, prepare: attach, top: long},
		{name: "DEL without a record", verb: "DEL", container: "pod", victims: pod, prepare: unrecorded, lost: true},
		{name: "DEL over a broken record", verb: "DEL", container: "pod", victims: pod, lost: true,
			prepare: func(c *cell) { c.attach("pod"); c.breakRecord("pod") }},
		{name: "DEL tried again", verb: "DEL", container: "pod", victims: pod, prepare: attach,
			guard: object{"retry": object{"backoff": "1ms"}}, script: script{"DEL": []string{refused, "free"}}},
		{name: "DEL fails", verb: "DEL", container: "pod", victims: pod, prepare: attach, script: script{"DEL": broken}},
		{name: "DEL deferred", verb: "DEL", container: "pod", victims: pod, prepare: attach, script: script{"DEL": broken},
			guard: object{"policy": object{"onError": "defer"}}},
		{name: "DEL repeated", verb: "DEL", container: "pod", victims: pod, prepare: owe},
		{name: "DEL replays", verb: "DEL", container: "next", victims: both, goneAlready: true,
			prepare: func(c *cell) { c.attach("next"); c.owe("pod"); c.SetNetns(c.T, "pod", "") }},
		{name: "DEL replays, that fails", verb: "DEL", container: "next", victims: both, goneAlready: true,
			prepare: func(c *cell) { c.attach("next"); c.owe("pod"); c.SetNetns(c.T, "pod", "") },
			script:  script{"DEL": []string{"free", broken}}},
		{name: "DEL releases an attachment", verb: "DEL", container: "next", victims: both, goneAlready: true,
			prepare: func(c *cell) {
				c.attach("next")
				c.attach("pod")
				c.SetNetns(c.T, "pod", "")
				c.age("pod")
				c.takesTurn("pod")
			}},
		{name: "GC, pending release", verb: "GC", victims: pod, prepare: owe, script: script{"GC": "gc"}},
		{name: "GC, netns gone", verb: "GC", victims: pod, goneAlready: true, script: script{"GC": "gc"},
			prepare: func(c *cell) { c.attach("pod"); c.SetNetns(c.T, "pod", "") }},
		{name: "GC, release fails", verb: "GC", victims: pod, prepare: owe, script: script{"DEL": broken, "GC": ""}},
	}
}

// unrecorded attaches a container without the guard.
func unrecorded(c *cell) {
	o := c.opts()
	o.Binary = filepath.Join(c.Bin, "fake")
	o.Conf.Position = guardtest.Bare
	c.Run(c.T, "ADD", "pod", o).OK(c.T)
}

func (c *cell) recordFile(container string) string {
	return filepath.Join(c.StateDir, "records", container, "eth0@testnet@fake")
}

func (c *cell) breakRecord(container string) {
	if err := os.WriteFile(c.recordFile(container), []byte("{]\n"), 0o600); err != nil {
		c.T.Fatal(err)
	}
}

// takesTurn makes an attachment the next to be looked at.
func (c *cell) takesTurn(container string) {
	marks, err := filepath.Glob(filepath.Join(c.StateDir, "queue", "fake", "a-*"))
	if err != nil {
		c.T.Fatal(err)
	}
	for _, m := range marks {
		if to, _ := os.Readlink(m); strings.Contains(to, "/"+container+"/") {
			before := filepath.Base(m)
			if err := os.WriteFile(filepath.Join(filepath.Dir(m), "cursor"), []byte(before[:len(before)-1]), 0o600); err != nil {
				c.T.Fatal(err)
			}
			return
		}
	}
	c.T.Fatalf("no mark of %s among %q", container, marks)
}
