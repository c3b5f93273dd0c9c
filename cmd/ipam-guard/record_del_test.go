package main_test

import (
	"os"
	"testing"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// onError is a guard that tries once and then does what is said.
func onError(then string) Object {
	return Object{"policy": Object{"onError": then}, "retry": Object{"attempts": 1}}
}

// wantDeferred fails the test unless a DEL was answered as a deferred one: with
// success where records last, else as failed. It returns which.
func wantDeferred(t testing.TB, n *guardtest.Node, r guardtest.Result) bool {
	t.Helper()
	if lasts(n) {
		r.OK(t)
		return true
	}
	has(t, r.Error(t).Details, "does not last")
	return false
}

// Case 11: how a DEL ends x what the policy says (whereabouts #119).
func TestMatrixOfDEL(t *testing.T) {
	t.Parallel()
	ends := map[string]struct {
		del  string
		owes bool // something is left to do
	}{
		"deadline exceeded": {fail(999, "context deadline exceeded"), true},
		"our timeout":       {"sleep 1m", true},
		"already released":  {fail(999, "Did not find reserved IP for container c1"), false},
		"unknown error":     {fail(100, "boom"), true},
		"ok":                {"free", false},
	}
	for name, end := range ends {
		for _, then := range []string{"fail", "defer", "succeed"} {
			t.Run(name+"/"+then, func(t *testing.T) {
				t.Parallel()
				n := guardtest.New(t)
				settings := onError(then)
				if then == "succeed" {
					settings["policy"] = Object{"rules": []any{Object{"name": "mine", "match": Object{}, "then": "succeed"}}}
				}
				if name == "our timeout" {
					settings["timeout"] = Object{"del": "2s"}
				}
				n.Run(t, "ADD", "c1", ask(nil, nil)).OK(t)
				n.SetScript(t, Script{"DEL": end.del})
				r := n.Run(t, "DEL", "c1", ask(nil, settings))
				switch {
				case !end.owes, then == "succeed":
					r.OK(t)
					wantStates(t, n)
				case then == "defer" && wantDeferred(t, n, r):
					wantStates(t, n, "c1/eth0 releasing now")
				default:
					r.Error(t)
					wantStates(t, n, "c1/eth0 releasing netns")
				}
				if r.RC == 0 && r.Stdout != "" {
					t.Errorf("stdout %q", r.Stdout)
				}
				wantCalls(t, n, "ADD DEL")
			})
		}
	}
}

// Case 12: what the delegate has released already is done, and so is its record
// (whereabouts #44, #74; ovs-cni #276).
func TestAlreadyReleasedEndsTheRecord(t *testing.T) {
	t.Parallel()
	for name, add := range map[string]string{"after a good ADD": "alloc", "after our own rollback": "alloc; " + fail(100, "no")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := guardtest.New(t)
			n.SetScript(t, Script{"ADD": add, "DEL": []string{"free", fail(999, "Did not find reserved IP for container c1")}})
			if add == "alloc" {
				n.Run(t, "ADD", "c1", ask(nil, nil)).OK(t)
				wantStates(t, n, "c1/eth0 attached")
				n.Run(t, "DEL", "other", ask(nil, nil)).OK(t)
				wantLeases(t, n, "c1/eth0")
			} else {
				n.Run(t, "ADD", "c1", ask(nil, nil)).Error(t)
				wantLeases(t, n)
				wantStates(t, n)
			}
			had := len(n.Calls(t))
			n.Run(t, "DEL", "c1", ask(nil, nil)).OK(t)
			wantStates(t, n)
			if have := len(n.Calls(t)); have != had+1 {
				t.Errorf("%d runs of the delegate", have-had)
			}
		})
	}
}

// Case 13: three times refused, then well again (aws vpc-cni #2350, #2487).
func TestConnectionRefusedThreeTimes(t *testing.T) {
	t.Parallel()
	refused := fail(999, refusedMsg)
	settings := func(then string) Object {
		return Object{"policy": Object{"onError": then}, "retry": Object{"backoff": "1ms"}}
	}
	begin := func(t *testing.T) *guardtest.Node {
		n := guardtest.New(t)
		n.Run(t, "ADD", "c1", ask(nil, nil)).OK(t)
		n.SetScript(t, Script{"DEL": []string{refused, refused, refused, "free"}})
		return n
	}
	t.Run("defer", func(t *testing.T) {
		t.Parallel()
		n := begin(t)
		if !wantDeferred(t, n, n.Run(t, "DEL", "c1", ask(nil, settings("defer")))) {
			return
		}
		wantStates(t, n, "c1/eth0 releasing now")
		wantLeases(t, n, "c1/eth0")
		n.Run(t, "DEL", "c2", ask(nil, nil)).OK(t)
		wantStates(t, n)
		wantLeases(t, n)
		wantCalls(t, n, "ADD DEL DEL DEL DEL DEL")
	})
	t.Run("fail", func(t *testing.T) {
		t.Parallel()
		n := begin(t)
		has(t, n.Run(t, "DEL", "c1", ask(nil, settings("fail"))).Error(t).Msg, refusedMsg)
		wantStates(t, n, "c1/eth0 releasing netns")
		n.Run(t, "DEL", "c1", ask(nil, settings("fail"))).OK(t)
		wantStates(t, n)
		wantLeases(t, n)
		wantCalls(t, n, "ADD DEL DEL DEL DEL")
	})
}

// Case 18, DEL: the delegate's binary is missing for a while (containerd #8785,
// #8774, kubeadm #587).
func TestMissingDelegateOnDEL(t *testing.T) {
	t.Parallel()
	for _, then := range []string{"fail", "defer"} {
		t.Run(then, func(t *testing.T) {
			t.Parallel()
			n := guardtest.New(t)
			n.Run(t, "ADD", "c1", ask(nil, nil)).OK(t)
			if err := os.Remove(n.Bin + "/fake"); err != nil {
				t.Fatal(err)
			}
			r := n.Run(t, "DEL", "c1", ask(nil, onError(then)))
			if then == "fail" || !wantDeferred(t, n, r) {
				if e := r.Error(t); e.Code != 11 {
					t.Errorf("have %+v", e)
				}
				wantStates(t, n, "c1/eth0 releasing netns")
				n.SetNetns(t, "c1", "") // what keeps others from releasing it
			} else {
				wantStates(t, n, "c1/eth0 releasing now")
			}
			n.Install(t, guardtest.Build(t, guardtest.Fake), "bin", "fake")
			n.Run(t, "DEL", "c2", ask(nil, nil)).OK(t)
			wantLeases(t, n)
			wantStates(t, n)
			wantCalls(t, n, "ADD DEL DEL")
		})
	}
}

// Case 19: one network of a pod can't be released, the other one is (ocicni #86,
// multus #152).
func TestOneNetworkFailsTheOtherIsReleased(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	on := func(network, ifname string) guardtest.Opts {
		o := ask(nil, onError("fail"))
		o.Conf.Name, o.IfName = network, ifname
		return o
	}
	n.Run(t, "ADD", "c1", on("a", "eth0")).OK(t)
	n.Run(t, "ADD", "c1", on("b", "net1")).OK(t)
	n.SetScript(t, Script{"DEL": []string{fail(100, "boom"), "free"}})
	n.Run(t, "DEL", "c1", on("a", "eth0")).Error(t)
	n.Run(t, "DEL", "c1", on("b", "net1")).OK(t)
	wantLeases(t, n, "c1/eth0")
	wantStates(t, n, "c1/eth0@a releasing netns")
	wantCalls(t, n, "ADD ADD DEL DEL")
	n.Run(t, "DEL", "c1", on("a", "eth0")).OK(t)
	wantLeases(t, n)
	wantStates(t, n)
}

// Case 25: no record, by a wiped stateDir or of a container that never was: the
// delegate is run all the same (antrea #829, calico cni-plugin #287).
func TestDELWithoutARecord(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	n.Run(t, "ADD", "c1", ask(nil, nil)).OK(t)
	if err := os.RemoveAll(n.StateDir); err != nil {
		t.Fatal(err)
	}
	n.Run(t, "DEL", "c1", ask(nil, nil)).OK(t)
	wantLeases(t, n)
	wantStates(t, n)
	n.Run(t, "DEL", "stranger", ask(nil, nil)).OK(t)
	wantStates(t, n)
	wantCalls(t, n, "ADD DEL DEL")
}
