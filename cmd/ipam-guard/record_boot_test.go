package main_test

import (
	"path/filepath"
	"testing"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
	"github.com/ipam-guard/ipam-guard/pkg/journal"
)

// Case 47: after a reboot, what was on its way is released by the first call
// that replays, even with something at its netns' path (plugins #252, #332,
// #697; k3s #5885).
func TestRecordsOfAnEarlierBoot(t *testing.T) {
	t.Parallel()
	tests := map[string]func(t *testing.T, n *guardtest.Node){
		"adding": func(t *testing.T, n *guardtest.Node) { strand(t, n, "c1") },
		"releasing": func(t *testing.T, n *guardtest.Node) {
			owe(t, n, "c1", ask(nil, nil))
			come(t, n, "early")
			wantLeases(t, n, "c1/eth0")
		},
		"releasing, without netns": func(t *testing.T, n *guardtest.Node) {
			n.Run(t, "ADD", "c1", ask(nil, nil)).OK(t)
			n.SetScript(t, broken)
			n.Run(t, "DEL", "c1", guardtest.Opts{Env: []string{"CNI_NETNS="}}).Error(t)
			n.SetScript(t, nil)
			n.SetNetns(t, "c1", "")
		},
		"releasing, its try far away": func(t *testing.T, n *guardtest.Node) {
			owe(t, n, "c1", ask(nil, nil))
			eachRecord(t, journalOf(n), func(e *journal.Entry) {
				if err := e.Update(func(r *journal.Record) { r.Due = 1 << 40 }); err != nil {
					t.Fatal(err)
				}
			})
		},
	}
	for name, before := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := guardtest.New(t)
			before(t, n)
			wantLeases(t, n, "c1/eth0")
			reboot(t, n)
			n.Run(t, "DEL", "other", ask(nil, nil)).OK(t)
			wantLeases(t, n)
			wantStates(t, n)
			dels := past(t, 0, callsOf(t, n, "DEL", "c1"))
			if last := dels[len(dels)-1]; last.Netns != "" {
				t.Errorf("a replay with netns %q", last.Netns)
			}
		})
	}
}

// Case 47, podman: the same container is started again after a reboot, and
// host-local would refuse it what it holds (plugins #697, nerdctl #665).
func TestSameContainerAfterAReboot(t *testing.T) {
	t.Parallel()
	tests := map[string]func(t *testing.T, n *guardtest.Node, o guardtest.Opts){
		"attached":  func(t *testing.T, n *guardtest.Node, o guardtest.Opts) { n.Run(t, "ADD", "c1", o).OK(t) },
		"adding":    func(t *testing.T, n *guardtest.Node, _ guardtest.Opts) { strand(t, n, "c1") },
		"releasing": func(t *testing.T, n *guardtest.Node, o guardtest.Opts) { owe(t, n, "c1", o) },
	}
	for name, before := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := guardtest.New(t)
			o := ask(Script{"ADD": "alloc-once"}, nil)
			before(t, n, o)
			reboot(t, n)
			n.Run(t, "ADD", "c1", o).OK(t)
			wantLeases(t, n, "c1/eth0")
			wantStates(t, n, "c1/eth0 attached")
			// It lives in this boot.
			come(t, n, "c2", "c3")
			n.Run(t, "GC", "", gcOf("c1")).OK(t)
			wantLeases(t, n, "c1/eth0")
			n.Run(t, "DEL", "c1", o).OK(t)
			wantLeases(t, n)
			wantStates(t, n)
			n.NoOverlap(t)
		})
	}
}

// Case 65: dataDir changed between a deferred DEL and an ADD of the same key.
// The old address is released first, under the old configuration.
func TestConfigurationChangedOverAPendingRelease(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	settings := Object{"policy": Object{"onError": "defer"}}
	before, after := ask(nil, settings), ask(nil, settings)
	now := *n
	now.FakeDir = filepath.Join(n.Dir, "fake2")
	after.Conf.Delegate = Object{"dir": now.FakeDir}
	n.Run(t, "ADD", "c1", before).OK(t)
	n.SetScript(t, broken)
	r := n.Run(t, "DEL", "c1", before)
	if lasting := journalOf(n).Lasting() == nil; (r.RC == 0) != lasting {
		t.Errorf("have %+v, lasting: %v", r, lasting)
	}

	// What can't be released keeps the ADD from its delegate.
	e := n.Run(t, "ADD", "c1", after).Error(t)
	if e.Code != 11 {
		t.Errorf("have %+v", e)
	}
	has(t, e.Msg+e.Details, "container c1", onFire, "forget")
	wantCalls(t, &now, "")
	wantLeases(t, n, "c1/eth0")

	n.SetScript(t, nil)
	n.Run(t, "ADD", "c1", after).OK(t)
	wantLeases(t, n)
	wantLeases(t, &now, "c1/eth0")
	wantCalls(t, &now, "ADD")
	wantStates(t, n, "c1/eth0 attached")
	dels := past(t, 0, n.Calls(t, "DEL"))
	if adds := past(t, 0, now.Calls(t, "ADD")); dels[len(dels)-1].End > adds[0].Start {
		t.Error("the old address was not released first")
	}
	n.Run(t, "DEL", "c1", after).OK(t)
	wantLeases(t, &now)
	wantStates(t, n)
}

// Case 70: switched off for a while over old records. Nothing of them is lost,
// and nothing that lives is freed.
func TestBypassOverRecords(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	mode := func(mode string) { n.SetNodeFile(t, Object{"defaults": Object{"mode": mode}}) }
	for _, c := range []string{"again", "ends", "fails", "stays"} {
		n.Run(t, "ADD", c, ask(nil, nil)).OK(t)
	}
	owe(t, n, "owed", ask(nil, nil))
	owe(t, n, "restarted", ask(nil, nil))
	strand(t, n, "stranded")
	strand(t, n, "revived")

	mode("bypass")
	n.Run(t, "DEL", "ends", ask(nil, nil)).OK(t)
	n.SetScript(t, broken)
	if r := n.Run(t, "DEL", "fails", ask(nil, nil)); r.RC == 0 {
		t.Errorf("have %+v", r)
	}
	n.SetScript(t, Script{"ADD": "alloc-same"})
	for _, c := range []string{"again", "restarted", "revived", "new"} {
		n.Run(t, "ADD", c, ask(nil, nil)).OK(t)
	}
	n.SetScript(t, nil)
	wantLeases(t, n, "again/eth0", "fails/eth0", "new/eth0", "owed/eth0", "restarted/eth0", "revived/eth0", "stays/eth0", "stranded/eth0")
	wantStates(t, n, "fails/eth0 attached", "owed/eth0 releasing netns", "stays/eth0 attached", "stranded/eth0 adding started")

	mode("guard")
	come(t, n, "c1", "c2", "c3")
	wantLeases(t, n, "again/eth0", "fails/eth0", "new/eth0", "owed/eth0", "restarted/eth0", "revived/eth0", "stays/eth0")
	n.SetNetns(t, "owed", "")
	n.SetNetns(t, "fails", "")
	come(t, n, "c1", "c2")
	n.Run(t, "GC", "", gcOf("again", "new", "restarted", "revived", "stays")).OK(t)
	wantLeases(t, n, "again/eth0", "new/eth0", "restarted/eth0", "revived/eth0", "stays/eth0")
	wantStates(t, n, "stays/eth0 attached")
	for _, c := range []string{"again", "new", "restarted", "revived", "stays"} {
		n.Run(t, "DEL", c, ask(nil, nil)).OK(t)
	}
	wantLeases(t, n)
	wantStates(t, n)
}
