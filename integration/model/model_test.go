//go:build integration || crash

package model_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
	"github.com/ipam-guard/ipam-guard/pkg/journal"
)

// step lets one thing happen and then looks whether all is as it must be.
func (w *world) step(t testing.TB, o op) {
	t.Helper()
	w.note("%s", o)
	switch o.what {
	case "mode":
		w.setMode(t, o.arg)
	case "gone":
		w.endNetns(t, o.arg)
	case "new":
		w.endNetns(t, o.arg)
		w.newNetns(t, o.arg)
	case "reboot":
		w.reboot(t)
	default:
		w.calls(t, o.calls)
	}
	w.check(t)
}

// calls runs one call, or several at once.
func (w *world) calls(t testing.TB, calls []call) {
	t.Helper()
	var procs []*guardtest.Proc
	for _, c := range calls {
		w.before(t, c)
	}
	for _, c := range calls {
		p := w.Start(t, c.cniVerb(), c.container(), w.opts(c))
		if c.kill > 0 {
			time.AfterFunc(c.kill, p.Kill)
		}
		procs = append(procs, p)
	}
	for i, c := range calls {
		r := procs[i].Wait(t)
		w.note("    %s: rc %d, signal %d, %v, %.300s", c, r.RC, r.Signal, r.Took.Round(time.Millisecond), r.Stdout)
		checkOutput(t, c, r)
		w.after(t, c, r, calls)
	}
	w.settle(t)
	for i, c := range calls {
		others := slices.Delete(slices.Clone(calls), i, i+1)
		if !slices.ContainsFunc(others, func(d call) bool { return d.arg == c.arg }) {
			w.checkAnswer(t, c, procs[i].Wait(t))
		}
	}
}

func (c call) cniVerb() string { return strings.ToUpper(strings.TrimSuffix(c.verb, "0")) }

func (c call) isDEL() bool { return c.cniVerb() == "DEL" }

func (c call) container() string { return attachments[c.arg].container }

func (w *world) opts(c call) guardtest.Opts {
	if c.verb == "gc" {
		network, list, _ := strings.Cut(c.arg, "=")
		valid := []guardtest.Object{}
		for container := range strings.SplitSeq(list, ",") {
			if container != "" {
				valid = append(valid, guardtest.Object{"containerID": container, "ifname": "eth0"})
			}
		}
		return guardtest.Opts{Conf: w.conf(network, w.pool, guardtest.Object{"cni.dev/valid-attachments": valid})}
	}
	a := attachments[c.arg]
	o := guardtest.Opts{Conf: w.conf(a.network, w.pool, nil), IfName: a.ifname, Netns: w.netns(a.container)}
	if c.verb == "del0" {
		o.Env = []string{"CNI_NETNS="}
	}
	return o
}

// before is what a call changes by being made.
func (w *world) before(t testing.TB, c call) {
	t.Helper()
	a := attachments[c.arg]
	switch {
	case c.isDEL():
		delete(w.live, a)
	case c.verb == "add" && !w.hasNetns(a.container):
		w.newNetns(t, a.container)
	}
}

// after is what a call changes by its answer. A DEL at the same time may have
// come after the ADD: nothing is known then.
func (w *world) after(t testing.TB, c call, r guardtest.Result, all []call) {
	t.Helper()
	if c.verb != "add" || r.RC != 0 || slices.ContainsFunc(all, func(d call) bool { return d.isDEL() && d.arg == c.arg }) {
		return
	}
	a := attachments[c.arg]
	if w.live[a] == nil {
		w.live[a] = map[string]bool{}
	}
	for _, ip := range r.IPs(t) {
		w.live[a][w.lease(a.network, ip)] = true
	}
}

// checkOutput: one JSON document, or nothing.
func checkOutput(t testing.TB, c call, r guardtest.Result) {
	t.Helper()
	switch {
	case r.Signal != 0 && r.Stdout == "":
	case r.Signal != 0 || r.RC == 0 && c.verb == "add":
		dec := json.NewDecoder(strings.NewReader(r.Stdout))
		var document map[string]any
		if err := dec.Decode(&document); err != nil || document["cniVersion"] != "1.1.0" {
			t.Errorf("%s: %v in %+v", c, err, r)
		}
		if _, err := dec.Token(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: more than one document: %+v", c, r)
		}
	case r.RC == 0 && r.Stdout != "":
		t.Errorf("%s: something on stdout: %+v", c, r)
	case r.RC != 0:
		r.Error(t)
	}
}

// checkAnswer: who is told that an address is released can rely on it.
func (w *world) checkAnswer(t testing.TB, c call, r guardtest.Result) {
	t.Helper()
	if !c.isDEL() || r.RC != 0 {
		return
	}
	a := attachments[c.arg]
	record, recorded := w.records(t)[a]
	if recorded && (record.State != journal.Releasing || record.Owed != journal.Now) {
		t.Errorf("%s was answered with success, and its record says %s, owed %s", c, record.State, record.Owed)
	}
	for address, owner := range w.leases(t) {
		if owner == a.owner() && !recorded {
			t.Errorf("%s was answered with success, and %s is neither free nor recorded", c, address)
		}
	}
}

func (a attachment) owner() string { return a.container + "/" + a.ifname }

// check looks whether all is as it must be while nobody is at work.
func (w *world) check(t testing.TB) {
	t.Helper()
	leases, records := w.leases(t), w.records(t)
	recorded := map[string]bool{}
	for a := range records {
		recorded[a.owner()] = true
	}
	for address, owner := range leases {
		if !recorded[owner] {
			t.Errorf("%s of %s has no record", address, owner)
		}
	}
	for a, addresses := range w.live {
		for address := range addresses {
			if leases[address] != a.owner() {
				t.Errorf("%s of %s, which lives, is leased to %q", address, a.owner(), leases[address])
			}
		}
		if s := records[a].State; s != journal.Attached {
			t.Errorf("%s lives, and its record says %q", a.owner(), s)
		}
	}
	w.checkMarks(t, records)
	w.noOverlap(t)
	w.note("    live %v, leases %v, %s", w.live, leases, states(records))
}

func states(records map[attachment]journal.Record) string {
	var texts []string
	for a, r := range records {
		texts = append(texts, fmt.Sprintf("%s %s %s started=%t", a.owner(), r.State, r.Owed, r.Started))
	}
	slices.Sort(texts)
	return strings.Join(texts, "; ")
}

// checkMarks: a record that no mark leads to would never be found again.
func (w *world) checkMarks(t testing.TB, records map[attachment]journal.Record) {
	t.Helper()
	marks, _ := filepath.Glob(w.StateDir + "/queue/*/[ap]-*")
	for a, r := range records {
		if !slices.ContainsFunc(marks, func(m string) bool {
			to, err := os.Readlink(m)
			return err == nil && strings.Contains(to, "/"+a.container+"/"+a.ifname+"@") &&
				(r.State == journal.Attached || strings.HasPrefix(filepath.Base(m), "p-"))
		}) {
			t.Errorf("no mark leads to the record of %s, %s: %v", a.owner(), r.State, marks)
		}
	}
}

// end heals what can be healed, lets what was given up go, makes time pass, and
// then expects ordinary calls for others to clear all that is left over.
func (w *world) end(t testing.TB) {
	t.Helper()
	w.note("end")
	w.setMode(t, "heal")
	w.settings(t, "20s") // a machine under load is no fault any more
	w.giveUp(t)
	for _, a := range w.age(t) {
		w.del(t, a) // in place of its ten minutes
	}
	w.check(t)
	left := len(w.records(t))
	for i := range left + 2 {
		a := attachment{networks[i%2], fmt.Sprintf("fresh%d", i), "eth0"}
		o := guardtest.Opts{Conf: w.conf(a.network, 100, nil), Netns: w.netns(a.container)}
		w.newNetns(t, a.container)
		w.Run(t, "ADD", a.container, o).IPs(t)
		w.del(t, a)
	}
	w.check(t)
	w.nothingLeftOver(t)
}

func (w *world) del(t testing.TB, a attachment) {
	t.Helper()
	o := guardtest.Opts{Conf: w.conf(a.network, 100, nil), IfName: a.ifname, Netns: w.netns(a.container)}
	if r := w.Run(t, "DEL", a.container, o).OK(t); r.Stdout != "" {
		t.Errorf("DEL of %s: stdout %q", a.owner(), r.Stdout)
	}
}

// giveUp ends the netns of containers of which something is left that only that
// sets free. Every other time the runtime sends its DEL again.
func (w *world) giveUp(t testing.TB) {
	t.Helper()
	for a, r := range w.records(t) {
		needs := r.State == journal.Attached || r.State == journal.Releasing && r.Owed == journal.Netns
		switch {
		case !needs || w.live[a] != nil || w.gone(&r):
		case w.seed%2 == 0:
			w.del(t, a)
		default:
			w.endNetns(t, a.container)
		}
	}
}

func (w *world) nothingLeftOver(t testing.TB) {
	t.Helper()
	owners := map[string]bool{}
	for a := range w.live {
		owners[a.owner()] = true
	}
	for address, owner := range w.leases(t) {
		if !owners[owner] {
			t.Errorf("left over: %s of %s", address, owner)
		}
	}
	for a, r := range w.records(t) {
		if w.live[a] == nil {
			t.Errorf("left over: the record of %s, %s, owed %s, last error %q", a.owner(), r.State, r.Owed, r.LastError)
		}
	}
	if names, _ := filepath.Glob(w.StateDir + "/aside/*"); len(names) > 0 {
		t.Errorf("set aside: %v", names)
	}
}
