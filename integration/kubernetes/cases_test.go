//go:build kubernetes

package kubernetes_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ipam-guard/ipam-guard/integration/kubernetes/internal/faultproxy"
	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// Case 64: whereabouts, PATCH answered 403: its log still ends in `<nil>`: not
// confirmed. Two ranges, the second one's PATCH fails, the retry finds the first
// empty and never looks at the second: not confirmed until each range is.
//
// Here the fault is over after one request, so that the same call makes it good.
func TestCase64(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ranges []string
		path   *regexp.Regexp
	}{
		"one range":             {[]string{"10.70.0.0/24"}, pools},
		"the second of two":     {[]string{"10.70.0.0/24", "10.71.0.0/24"}, regexp.MustCompile(`/ippools/10\.71\.`)},
		"the second of three":   {[]string{"10.70.0.0/24", "10.71.0.0/24", "10.72.0.0/24"}, regexp.MustCompile(`/ippools/10\.71\.`)},
		"the last one, of IPv6": {[]string{"10.70.0.0/24", "fd00:70::/112"}, regexp.MustCompile(`/ippools/fd00`)},
	} {
		for _, position := range []string{ipam, shadow} {
			t.Run(name+"/"+position, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, position, c.ranges, nil)
				p := newPod("victim")
				w.add(t, p)
				w.proxy.Set(faultproxy.Rule{Method: "PATCH", Path: c.path, Status: 403, Times: 1})
				w.del(t, p, nil).OK(t)
				if _, faults, _ := w.proxy.Counts(); faults != 1 {
					t.Fatalf("%d requests met the fault, want 1: nothing was tested", faults)
				}
				if have := w.left(t); have != (left{}) {
					t.Errorf("told success, left %+v", have)
				}
				if n := w.pending(t); n != 0 {
					t.Errorf("%d records left", n)
				}
			})
		}
	}
}

// Case 64, its twin: the second range stays locked up, the call fails, and the
// first one, which is free, is taken by another pod meanwhile. The next DEL
// releases the second one alone.
func TestCase64NextCall(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ipam, []string{"10.70.0.0/24", "10.71.0.0/24"}, nil)
	victim, other := newPod("victim"), newPod("other")
	w.add(t, victim)
	w.proxy.Set(faultproxy.Rule{Method: "PATCH", Path: regexp.MustCompile(`/ippools/10\.71\.`), Status: 403})
	if r := w.del(t, victim, nil); r.Error(t).Code != 11 {
		t.Fatalf("have %+v", r)
	}
	w.proxy.Set()
	if have := w.add(t, other); !cmp.Equal(have, []string{"10.70.0.1", "10.71.0.2"}) {
		t.Fatalf("the other pod got %v", have)
	}
	w.del(t, victim, nil).OK(t)
	for _, a := range w.allocations(t) {
		if a.Container != other.container {
			t.Errorf("still taken: %+v", a)
		}
	}
	if have := w.left(t).addresses; have != 2 {
		t.Errorf("the other pod has %d addresses left, want 2", have)
	}
}

// Case 10: guard in guard, by netconf and shadow: the outer one guards, the inner
// one passes through, no hang. A DEL that the inner one can't confirm is an error
// to the outer one, which keeps the record.
func TestCase10(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ipam, []string{"10.70.0.0/24"}, nil)
	shadow := w.Install(t, guardtest.Build(t, guardtest.Guard), "shadow", "whereabouts")
	w.path = filepath.Dir(shadow) + ":" + w.Bin
	p := newPod("victim")
	w.add(t, p)
	if n := w.pending(t); n != 1 {
		t.Errorf("%d records, want 1: the outer guard's", n)
	}
	w.proxy.Set(faultproxy.Rule{Method: "PATCH", Path: pools, Status: 403, Times: 1})
	runs := w.runs(t, "DEL")
	w.del(t, p, nil).OK(t)
	// The one that failed, one whose reservation was gone already, and at the most
	// one more: an inner guard that tried again too would need more.
	if n := w.runs(t, "DEL") - runs; n < 2 || n > 3 {
		t.Errorf("%d runs of whereabouts", n)
	}
	if have := w.left(t); have != (left{}) || w.pending(t) != 0 {
		t.Errorf("left %+v, %d records", have, w.pending(t))
	}
}

// Case 40: a delegate's result without gateway, with 4 addresses, goes through
// as it came, whereabouts' too.
func TestCase40(t *testing.T) {
	t.Parallel()
	ranges := []string{"10.70.0.0/24", "10.71.0.0/30", "fd00:70::/112", "fd00:71::/64"}
	p := newPod("victim")
	bareOne := newWorld(t, bare, ranges, nil)
	want := bareOne.call(t, "ADD", p, nil).OK(t).Stdout
	for _, position := range []string{ipam, shadow} {
		w := newWorld(t, position, ranges, nil)
		r := w.call(t, "ADD", p, nil).OK(t)
		if r.Stdout != want {
			t.Errorf("%s: have %s\nwant %s", position, r.Stdout, want)
		}
		if n := len(r.IPs(t)); n != len(ranges) {
			t.Errorf("%d addresses, want %d", n, len(ranges))
		}
	}
}

// What whereabouts says more because the guard asked for it reaches the runtime
// only if the DEL failed. (Without being asked it says nothing in these tests.)
func TestVerbosity(t *testing.T) {
	t.Parallel()
	for _, position := range []string{ipam, shadow} {
		w := newWorld(t, position, []string{"10.70.0.0/24"}, nil)
		good, bad := newPod("good"), newPod("bad")
		w.add(t, good)
		w.add(t, bad)
		if r := w.del(t, good, nil).OK(t); strings.Contains(r.Stderr, "[debug]") {
			t.Errorf("%s: a DEL that worked says %s", position, r.Stderr)
		}
		w.proxy.Set(faultproxy.Rule{Method: "PATCH", Path: pools, Status: 403})
		if r := w.del(t, bad, nil); r.RC == 0 || !strings.Contains(r.Stderr, "[debug] IPManagement: ") {
			t.Errorf("%s: a DEL that failed (%d) says %s", position, r.RC, r.Stderr)
		}
	}
}
