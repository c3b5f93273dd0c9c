package main_test

import (
	"os"
	"strings"
	"testing"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// Cases 29, 30 and 33, what becomes of the record: a failed ADD that was rolled
// back leaves none; one that could not be is released by the next call, and what
// went wrong first stays what the runtime is told (calico cni-plugin #325 and
// #908, spiderpool #1045, snc #203).
func TestRecordOfAFailedADD(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		end  string // of the delegate's ADD
		code uint
		msg  string
	}{
		"29, no address": {`print "{\"cniVersion\": \"1.0.0\", \"ips\": []}"`, 999, "no address"},
		"29, junk":       {`print "junk"`, 999, "JSON"},
		"29, 200 MB":     {"flood 200MB", 999, "1048576 bytes"},
		"30, no IPv6":    {fail(100, "no IPv6", "pool v6 is empty"), 100, "no IPv6"},
		"33, SIGKILL":    {"die KILL", 11, "signal 9"},
		"33, SIGSEGV":    {"die SEGV", 11, "signal 11"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := guardtest.New(t)
			add := "alloc; " + tt.end
			e := n.Run(t, "ADD", "c1", ask(Script{"ADD": add}, nil)).Error(t)
			if e.Code != tt.code {
				t.Errorf("have %+v", e)
			}
			has(t, e.Msg, tt.msg)
			hasNot(t, e.Msg+e.Details, "rollback")
			wantCalls(t, n, "ADD DEL")
			wantLeases(t, n)
			wantStates(t, n)

			n.SetScript(t, Script{"ADD": add, "DEL": fail(102, "DEL is out of order")})
			e = n.Run(t, "ADD", "c1", ask(nil, nil)).Error(t)
			if e.Code != tt.code {
				t.Errorf("have %+v", e)
			}
			has(t, e.Msg, tt.msg)
			hasNot(t, e.Msg, "rollback")
			has(t, e.Details, "rollback", "container c1", "DEL is out of order", "released later, from its record")
			wantCalls(t, n, "ADD DEL ADD DEL")
			wantLeases(t, n, "c1/eth0")
			wantStates(t, n, "c1/eth0 releasing now")

			n.SetScript(t, nil)
			come(t, n, "other")
			wantLeases(t, n)
			wantStates(t, n)
			n.NoOverlap(t)
		})
	}
}

// Case 31: two networks of one container; what the second one's failure takes
// back is never the first one's (spiderpool #4295).
func TestRollbackOfTheSecondNetwork(t *testing.T) {
	t.Parallel()
	for name, ifname := range map[string]string{"another interface": "net2", "the same interface": "net1"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := guardtest.New(t)
			first, second := ask(nil, nil), ask(nil, nil)
			first.IfName, first.Conf.Name = "net1", "one"
			second.IfName, second.Conf.Name = ifname, "two"
			n.SetScript(t, Script{"DEL": "free-network"})
			n.Run(t, "ADD", "c1", first).OK(t)
			n.SetScript(t, Script{"ADD": "alloc; " + fail(100, "no"), "DEL": []string{fail(999, onFire), "free-network"}})
			n.Run(t, "ADD", "c1", second).Error(t)
			wantLeases(t, n, "c1/net1", "c1/"+ifname)
			wantStates(t, n, "c1/net1@one attached", "c1/"+ifname+"@two releasing now")

			n.Run(t, "DEL", "other", ask(nil, nil)).OK(t) // it releases what is owed
			wantLeases(t, n, "c1/net1")
			wantStates(t, n, "c1/net1@one attached")
			n.Run(t, "ADD", "c1", second).Error(t)
			n.Run(t, "DEL", "other", ask(nil, nil)).OK(t)
			wantLeases(t, n, "c1/net1")
			wantStates(t, n, "c1/net1@one attached")
			for _, c := range callsOf(t, n, "DEL", "c1") {
				if c.IfName != ifname || !strings.Contains(c.Stdin, `"name":"two"`) {
					t.Errorf("a DEL of %s by %s", c.IfName, c.Stdin)
				}
			}
		})
	}
}

// Case 32: a live attachment is asked for once more; host-local's answer is
// passed on, and nothing is taken from it (nerdctl #665, podman #18753).
func TestDuplicateAllocationOfALiveAttachment(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	o := ask(Script{"ADD": "alloc-once"}, nil)
	n.Run(t, "ADD", "c1", o).OK(t)
	before := filesOf(t, n.StateDir)
	e := n.Run(t, "ADD", "c1", o).Error(t)
	if e.Code != 999 || e.Details != "" {
		t.Errorf("have %+v", e)
	}
	has(t, e.Msg, "duplicate allocation is not allowed")
	wantCalls(t, n, "ADD ADD")
	wantSame(t, before, filesOf(t, n.StateDir))
	come(t, n, "other")
	wantLeases(t, n, "c1/eth0")
	wantStates(t, n, "c1/eth0 attached")

	// With an earlier ADD of ours that was never committed it isn't the answer of
	// a living one: that is released first.
	n.SetScript(t, Script{"DEL": "free"})
	n.Run(t, "DEL", "c1", o).OK(t)
	n.SetScript(t, nil)
	strand(t, n, "c1")
	n.Run(t, "ADD", "c1", o).OK(t)
	wantLeases(t, n, "c1/eth0")
	wantStates(t, n, "c1/eth0 attached")
}

func wantSame(t testing.TB, before, after map[string]string) {
	t.Helper()
	for name, text := range before {
		if now, ok := after[name]; !ok || now != text {
			t.Errorf("%s was\n%s\nand is (%v)\n%s", name, text, ok, now)
		}
	}
	for name := range after {
		if _, ok := before[name]; !ok {
			t.Errorf("%s is new", name)
		}
	}
}

// Case 44: the caller closes its ends of the pipes and goes away during an ADD.
// It is rolled back; can that not be done at once, then later (cri-o #8007).
func TestRecordWhenTheCallerGoesAway(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	leave := func(container string) int {
		p := n.Start(t, "ADD", container, ask(Script{"ADD": "alloc; touch here; waitfile go"}, nil))
		here := n.FakeDir + "/here"
		guardtest.Eventually(t, "the delegate", func() bool { return os.Remove(here) == nil })
		closeOutput(t, p)
		n.Touch(t, "go")
		defer os.Remove(n.FakeDir + "/go")
		return p.Wait(t).RC
	}
	if rc := leave("c1"); rc == 0 {
		t.Error("exit status 0")
	}
	wantCalls(t, n, "ADD DEL")
	wantLeases(t, n)
	wantStates(t, n)

	n.SetScript(t, Script{"ADD": "alloc; touch here; waitfile go", "DEL": fail(999, onFire)})
	if rc := leave("c2"); rc == 0 {
		t.Error("exit status 0")
	}
	wantLeases(t, n, "c2/eth0")
	wantStates(t, n, "c2/eth0 releasing now")
	n.SetScript(t, nil)
	come(t, n, "other")
	wantLeases(t, n)
	wantStates(t, n)
}

// Case 48: a full disk. An ADD fails before its delegate is run, a DEL still
// runs it (plugins #498).
func TestDiskIsFull(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	fill, clear := smallDisk(t, n)
	n.Run(t, "ADD", "c1", ask(nil, nil)).OK(t)
	n.Run(t, "ADD", "c2", bare(n, nil)).OK(t)
	fill()
	e := n.Run(t, "ADD", "c3", ask(nil, nil)).Error(t)
	if e.Code != 5 {
		t.Errorf("have %+v", e)
	}
	has(t, e.Msg, "container c3", "no space left on device")
	has(t, e.Details, "not run")
	if have := callsOf(t, n, "ADD", "c3"); len(have) != 0 {
		t.Errorf("the delegate was run: %+v", have)
	}
	wantStates(t, n, "c1/eth0 attached")
	for _, c := range []string{"c1", "c2"} { // with a record and without
		n.Run(t, "DEL", c, ask(nil, nil)).OK(t)
	}
	wantLeases(t, n)
	wantStates(t, n)
	clear()
	come(t, n, "c3")
	wantLeases(t, n)
	wantStates(t, n)
}

// Case 48, second part: the disk gets full between adding and attached. A
// result is never printed over an adding record (plugins #498).
func TestDiskGetsFullDuringADD(t *testing.T) {
	t.Parallel()
	for name, del := range map[string]string{"rolled back": "free", "not to be rolled back": fail(999, onFire)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := guardtest.New(t)
			fill, clear := smallDisk(t, n)
			n.SetScript(t, Script{"ADD": "touch here; waitfile go; " + wide, "DEL": del})
			p := n.Start(t, "ADD", "c1", ask(nil, nil))
			guardtest.Eventually(t, "the delegate", func() bool { return os.Remove(n.FakeDir+"/here") == nil })
			fill()
			n.Touch(t, "go")
			e := p.Wait(t).Error(t)
			if e.Code != 5 {
				t.Errorf("have %+v", e)
			}
			has(t, e.Msg, "container c1", "no space left on device")
			wantCalls(t, n, "ADD DEL")
			if del != "free" {
				wantLeases(t, n, "c1/eth0")
				has(t, e.Details, onFire)
				n.SetScript(t, nil)
				n.Run(t, "DEL", "other", ask(nil, nil)).OK(t) // with the disk still full
			}
			wantLeases(t, n)
			wantStates(t, n)
			clear()

			// The same result with a disk behind it.
			n.SetScript(t, Script{"ADD": wide})
			n.Run(t, "ADD", "c1", ask(nil, nil)).OK(t)
			wantStates(t, n, "c1/eth0 attached")
		})
	}
}
