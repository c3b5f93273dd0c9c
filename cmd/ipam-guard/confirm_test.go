package main_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
	"github.com/ipam-guard/ipam-guard/pkg/journal"
)

// What whereabouts v0.9.2 writes to stderr (measured against a real API server).
const (
	wbDone     = "2026-12-02T02:00:00Z [debug] IPManagement: [{<nil> <nil>}], <nil>\n"
	wbNothing  = "2026-12-02T02:00:00Z [debug] Failed to find allocation for container ID: c1\n2026-12-02T02:00:00Z [debug] IPManagement: [], <nil>\n"
	wbRefused  = "2026-12-02T02:00:00Z [error] IPAM connectivity error: connection refused\n2026-12-02T02:00:00Z [debug] IPManagement: [], connection refused\n"
	wbPatch403 = "2026-12-02T02:00:00Z [error] IPAM error updating pool (attempt: 0): pods \"x\" is forbidden\n" + wbDone
	wbGone404  = "2026-12-02T02:00:00Z [error] Error performing UpdateOverlappingRangeAllocation: overlappingrangeipreservations.whereabouts.cni.cncf.io \"10.70.0.1\" not found\n" +
		"2026-12-02T02:00:00Z [debug] IPManagement: [], overlappingrangeipreservations.whereabouts.cni.cncf.io \"10.70.0.1\" not found\n"
)

// whereabouts makes a node whose delegate has that name: what is known of it is
// built in.
func whereabouts(t *testing.T, delegate, settings Object) (*guardtest.Node, guardtest.Opts) {
	t.Helper()
	n := guardtest.New(t)
	n.Install(t, guardtest.Build(t, guardtest.Fake), "bin", "whereabouts")
	o := ask(nil, settings)
	o.Conf.Delegate = Object{"type": "whereabouts", "range": "10.9.0.0/24"}
	for k, v := range delegate {
		o.Conf.Delegate[k] = v
	}
	n.Run(t, "ADD", "c1", o).OK(t)
	return n, o
}

// recordOf is the record that a container has.
func recordOf(t *testing.T, n *guardtest.Node, container string) (found journal.Record) {
	t.Helper()
	eachRecord(t, journalOf(n), func(e *journal.Entry) {
		if e.Container == container {
			found = e.Record
		}
	})
	return found
}

func says(text, then string) string { return fmt.Sprintf("stderr %q; %s", text, then) }

// Case 64, and whereabouts #119: a DEL that exits 0 without the sign that it
// released the address counts as failed, and is tried again.
func TestConfirmation(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		first string // what the first DEL does
		kind  string
	}{
		"done":                        {says(wbDone, "free"), "ok"},
		"nothing there":               {says(wbNothing, "free"), "ok"},
		"no line":                     {"", "unconfirmed"},
		"refused":                     {says(wbRefused, ""), "unconfirmed"},
		"PATCH 403, ends in nil":      {says(wbPatch403, ""), "unconfirmed"},
		"reservation went before":     {says(wbGone404, "free"), "ok"},
		"an earlier line is no sign":  {says(wbDone+wbRefused, ""), "unconfirmed"},
		"more than can be searched":   {says(wbPatch403, "floodstderr 2MB; ") + says(wbDone, ""), "unconfirmed"},
		"line without its end":        {says(strings.TrimSuffix(wbDone, "\n"), "free"), "ok"},
		"it fails by its exit status": {says(wbDone, `exit 1 "no" 100`), "error"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, o := whereabouts(t, nil, Object{"retry": Object{"backoff": "1ms", "attempts": 1}})
			n.SetScript(t, Script{"DEL": []string{tt.first, says(wbDone, "free")}})
			r := n.Run(t, "DEL", "c1", o)
			line := lastLine(t, n)
			if kind := line["attempts"].([]any)[0].(Object)["kind"]; kind != tt.kind {
				t.Errorf("kind %v, want %s", kind, tt.kind)
			}
			if tt.kind == "ok" {
				r.OK(t)
				wantStates(t, n)
				if strings.Contains(r.Stderr, "IPManagement") {
					t.Errorf("the verbosity that was not asked for reached the runtime: %s", r.Stderr)
				}
				return
			}
			e := r.Error(t)
			if tt.kind == "unconfirmed" && (e.Code != 11 || !strings.Contains(e.Msg, "may still be taken")) {
				t.Errorf("have %+v", e)
			}
			hasNot(t, r.Stdout, "not found")
			if tt.first != "" && !strings.Contains(r.Stderr, "IPManagement") {
				t.Errorf("a failed run's stderr was held back: %q", r.Stderr)
			}
			wantLeases(t, n, "c1/eth0")
			n.Run(t, "DEL", "c1", o).OK(t)
			wantLeases(t, n)
			wantStates(t, n)
		})
	}
}

// The level is asked for on DEL only, in the ipam object, in every position;
// where the administrator has it so already, nothing is held back.
func TestConfirmationSets(t *testing.T) {
	t.Parallel()
	n, o := whereabouts(t, Object{"log_level": "error"}, nil)
	n.SetScript(t, Script{"DEL": says(wbDone, "free")})
	n.Run(t, "DEL", "c1", o).OK(t)
	calls := n.Calls(t)
	has(t, calls[0].Stdin, `"log_level":"error"`)
	has(t, calls[1].Stdin, `"log_level":"debug"`)

	n, o = whereabouts(t, Object{"log_level": "debug"}, nil)
	n.SetScript(t, Script{"DEL": says(wbDone, "free")})
	has(t, n.Run(t, "DEL", "c1", o).OK(t).Stderr, "IPManagement")

	// Switched off, exit status 0 is believed.
	n, o = whereabouts(t, nil, nil)
	o.Stdin = []byte(strings.Replace(string(n.Netconf(o.Conf)), `"guard":{`, `"guard":{"confirm":null,`, 1))
	n.SetScript(t, Script{"DEL": "free"})
	n.Run(t, "DEL", "c1", o).OK(t)
	wantStates(t, n)
}

// The administrator's own, in plugin position: laid over the ipam object.
func TestConfirmationOfAPlugin(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	o := asPlugin(nil, Object{"confirm": Object{"line": "^released", "ok": "all$", "set": Object{"say": true}}, "retry": Object{"attempts": 1}})
	o.Conf.Delegate = Object{"ipam": Object{"type": "x"}}
	n.Run(t, "ADD", "c1", o).OK(t)
	n.SetScript(t, Script{"DEL": []string{says("released some\n", ""), says("released all\n", "free")}})
	e := n.Run(t, "DEL", "c1", o).Error(t)
	has(t, e.Msg, "released some", "confirm.ok")
	n.Run(t, "DEL", "c1", o).OK(t)
	has(t, n.Calls(t, "DEL")[1].Stdin, `"ipam":{"type":"x","say":true}`)
}

// A rollback and a replay have to show it too.
func TestConfirmationOfRollbackAndReplay(t *testing.T) {
	t.Parallel()
	n, o := whereabouts(t, nil, nil)
	n.SetScript(t, Script{"ADD": "alloc; " + fail(100, "no"), "DEL": says(wbRefused, "")})
	e := n.Run(t, "ADD", "c2", o).Error(t)
	has(t, e.Details, "the rollback", "connection refused")
	wantStates(t, n, "c1/eth0 attached", "c2/eth0 releasing now")

	n.SetScript(t, Script{"DEL": []string{says(wbDone, "free"), says(wbPatch403, "")}})
	n.Run(t, "DEL", "c1", o).OK(t)
	wantStates(t, n, "c2/eth0 releasing now")
	e2 := recordOf(t, n, "c2")
	has(t, e2.LastError, "IPAM error updating pool")
}

// Case 64, two ranges: one DEL frees the first and fails at the second; the next
// finds the first empty and looks no further. Each range by itself, then, and
// none twice.
func TestConfirmationOfEachRange(t *testing.T) {
	t.Parallel()
	ranges := Object{"ipRanges": []Object{{"range": "10.8.0.0/24", "exclude": []string{}}, {"range": "fd08::/64"}}}
	n, o := whereabouts(t, ranges, Object{"retry": Object{"backoff": "1ms", "attempts": 2}})
	n.SetScript(t, Script{"DEL": []string{
		says(wbPatch403, ""),                                        // all of them
		says(wbDone, ""), says(wbNothing, ""), says(wbPatch403, ""), // each
		says(wbRefused, ""),  // the one that is left
		says(wbDone, "free"), // the next call
	}})
	e := n.Run(t, "DEL", "c1", o).Error(t)
	if e.Code != 11 {
		t.Errorf("have %+v", e)
	}
	if c := recordOf(t, n, "c1").Confirmed; len(c) != 2 {
		t.Errorf("noted as released: %q", c)
	}
	n.Run(t, "DEL", "c1", o).OK(t)
	wantStates(t, n)
	wantLeases(t, n)
	for i, want := range []string{
		`"range":"10.9.0.0/24"`,
		`"ipRanges":[{"range":"10.9.0.0/24"}]`, `"ipRanges":[{"exclude":[],"range":"10.8.0.0/24"}]`, `"ipRanges":[{"range":"fd08::/64"}]`,
		`"ipRanges":[{"range":"fd08::/64"}]`, `"ipRanges":[{"range":"fd08::/64"}]`,
	} {
		has(t, n.Calls(t, "DEL")[i].Stdin, want)
	}
	has(t, n.Calls(t, "DEL")[3].Stdin, `"range":"fd08::/64"`)
}

// A DEL that was killed between two ranges leaves no trace of how far it got: the
// next one finds the first empty, and that is the sign to look at each.
func TestConfirmationAfterAKilledDEL(t *testing.T) {
	t.Parallel()
	n, o := whereabouts(t, Object{"ipRanges": []Object{{"range": "fd08::/64"}}}, Object{"retry": Object{"attempts": 1}})
	n.SetScript(t, Script{"DEL": []string{says(wbNothing, ""), says(wbNothing, ""), says(wbDone, "free")}})
	n.Run(t, "DEL", "c1", o).OK(t)
	wantLeases(t, n)
	wantCalls(t, n, "ADD DEL DEL DEL")
}

// Below another guard there is nobody to note anything, and no time to keep: the
// one above gets code 11, and asks again.
func TestConfirmationBelow(t *testing.T) {
	t.Parallel()
	n, o := whereabouts(t, nil, Object{"retry": Object{"backoff": "1ms", "attempts": 1}, "confirm": Object{"line": ".", "ok": "."}})
	o.Path = n.Bin
	o.Env = []string{"IPAM_GUARD_ABOVE=1:1"}
	n.SetScript(t, Script{"DEL": []string{says(wbRefused, ""), says(wbDone, "free")}})
	inner := o
	inner.Conf.Guard = nil
	e := n.Run(t, "DEL", "c1", inner).Error(t)
	if e.Code != 11 {
		t.Errorf("have %+v", e)
	}
	n.Run(t, "DEL", "c1", inner).OK(t)
	wantLeases(t, n)
}
