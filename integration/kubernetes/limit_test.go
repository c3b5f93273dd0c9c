//go:build kubernetes

package kubernetes_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ipam-guard/ipam-guard/integration/kubernetes/internal/faultproxy"
	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// What removes an overlapping reservation that whereabouts has left behind? A
// finding is what was tried, and whether it was gone then.
type finding struct {
	tried string
	gone  bool
}

// orphan is a world with a reservation that no pool knows of any more.
func orphan(t *testing.T) (*world, pod, string) {
	w := newWorld(t, bare, []string{"10.70.0.0/24"}, nil)
	victim := newPod("victim")
	address := w.add(t, victim)[0]
	w.proxy.Set(faultproxy.Rule{Method: "DELETE", Path: reservations, Status: 500})
	w.del(t, victim, nil)
	w.proxy.Set()
	if have := w.left(t); have != (left{0, 1}) {
		t.Fatalf("want a reservation without an allocation, have %+v", have)
	}
	return w, victim, address
}

// with lays members over whereabouts' object for one call.
func (w *world) with(members guardtest.Object) func(*guardtest.Opts) {
	return func(o *guardtest.Opts) {
		o.Conf.Delegate = guardtest.Object{}
		for k, v := range w.conf.Delegate {
			o.Conf.Delegate[k] = v
		}
		for k, v := range members {
			o.Conf.Delegate[k] = v
		}
	}
}

// The limit that is documented: neither a second DEL nor one with other settings
// removes it; only an ADD of the same pod, held to that address, and then a DEL.
func TestOverlappingReservation(t *testing.T) {
	t.Parallel()
	tries := []struct {
		tried string
		gone  bool
		do    func(t *testing.T, w *world, victim pod, address string)
	}{
		{"a second DEL", false, func(t *testing.T, w *world, victim pod, _ string) { w.del(t, victim, nil).OK(t) }},
		{"a DEL with `enable_overlapping_ranges` true", false, func(t *testing.T, w *world, victim pod, _ string) {
			w.del(t, victim, w.with(guardtest.Object{"enable_overlapping_ranges": true})).OK(t)
		}},
		{"a DEL with the address alone as its range", false, func(t *testing.T, w *world, victim pod, address string) {
			w.del(t, victim, w.with(only(address))).OK(t)
		}},
		{"another pod's ADD and DEL", false, func(t *testing.T, w *world, _ pod, address string) {
			p := newPod("stranger")
			if have := w.add(t, p); cmp.Equal(have, []string{address}) {
				t.Errorf("the stranger got the reserved %s", address)
			}
			w.del(t, p, nil).OK(t)
		}},
		{"an ADD of the same pod name, with the address alone as its range, and its DEL", true,
			func(t *testing.T, w *world, victim pod, address string) {
				again := newPod(victim.name)
				have := w.call(t, "ADD", again, w.with(only(address))).IPs(t)
				if !cmp.Equal(have, []string{address}) {
					t.Errorf("got %v, want %s", have, address)
				}
				w.del(t, again, nil).OK(t)
			}},
	}
	for _, try := range tries {
		t.Run(try.tried, func(t *testing.T) {
			t.Parallel()
			w, victim, address := orphan(t)
			try.do(t, w, victim, address)
			have := w.left(t)
			gone := have == left{}
			if gone != try.gone {
				t.Errorf("gone: %v, left: %+v", gone, have)
			}
			stage.report.find(finding{tried: try.tried, gone: gone})
		})
	}
}

// only is a range of one address, in the same pool.
func only(address string) guardtest.Object {
	return guardtest.Object{"range": fmt.Sprintf("%s-%s/24", address, address)}
}
