//go:build kubernetes

package kubernetes_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/ipam-guard/ipam-guard/integration/kubernetes/internal/faultproxy"
	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// slowness is what each request takes during the storm.
const slowness = 500 * time.Millisecond

// A storm is what many DELs at once did to one variant.
type storm struct {
	variant
	pods     int
	answered time.Duration // from its beginning until the last caller had its answer
	longest  time.Duration // that one call took
	calls    int
	failed   int // of them
	atOnce   left
	pending  int // records, when the last caller had its answer
	others   int // pods that came and went after it
	lastFree time.Duration
	after    left
	requests int
	runs     int
	met      int // runs that began while another was running
}

// Many pods end at once while the API is slow. Bare, the DELs wait for their
// lease until their minute is over, and say that all is well.
func TestStorm(t *testing.T) {
	together(t)
	for _, v := range gales() {
		t.Run(fmt.Sprint(v.position, "/", v.policy, "/", v.caller()), func(t *testing.T) {
			together(t)
			s := weather(t, v, stormSize())
			s.judge(t)
			stage.report.addStorm(s)
		})
	}
}

func gales() []variant {
	return []variant{
		{position: bare, repeats: true},
		{position: ipam, policy: "fail", repeats: true},
		{position: shadow, policy: "defer"},
	}
}

func stormSize() int {
	if testing.Short() {
		return 10
	}
	return 30
}

func weather(t *testing.T, v variant, size int) storm {
	w := newWorld(t, v.position, []string{"10.70.0.0/24"}, guardtest.Object{"policy": guardtest.Object{"onError": v.policy}})
	s := storm{variant: v, pods: size}
	pods := make([]pod, size)
	for i := range pods {
		pods[i] = newPod(fmt.Sprintf("pod-%d", i))
		w.add(t, pods[i])
	}
	runs := w.runs(t, "DEL")
	w.proxy.Set(faultproxy.Rule{Delay: slowness})
	began := time.Now()
	s.requests = w.requests(func() {
		s.rage(t, w, pods)
		s.answered = time.Since(began)
		s.atOnce, s.pending = w.left(t), w.pending(t)
		w.proxy.Set()
		s.settle(t, w)
	})
	s.after, s.runs = w.left(t), w.runs(t, "DEL")-runs
	s.lastFree, s.met = time.Since(began), len(w.overlaps(t))
	return s
}

// rage calls all DELs at once, and returns when each caller has done what its
// runtime does.
func (s *storm) rage(t *testing.T, w *world, pods []pod) {
	var all sync.WaitGroup
	var mu sync.Mutex
	for _, p := range pods {
		all.Go(func() {
			for again := true; again; {
				r := w.del(t, p, nil)
				mu.Lock()
				s.calls++
				s.longest = max(s.longest, r.Took)
				if r.RC != 0 {
					s.failed++
				}
				mu.Unlock()
				if again = r.RC != 0 && s.repeats; again {
					time.Sleep(kubeletPause())
				}
			}
			w.SetNetns(t, p.container, "")
		})
	}
	all.Wait()
}

// kubeletPause is how long a pod's worker waits after an error: 10 s and up to
// half as much again (workerBackOffPeriod in kubelet's pod_workers.go).
func kubeletPause() time.Duration {
	return 10*time.Second + time.Duration(rand.Int64N(int64(5*time.Second)))
}

// settle lets one more pod come and go each second until no record is pending,
// but no longer than twice as many as there were.
func (s *storm) settle(t *testing.T, w *world) {
	for limit := 2*s.pending + 2; w.pending(t) > 0 && s.others < limit; s.others++ {
		w.others(t, 1)
	}
}

func (s *storm) judge(t *testing.T) {
	t.Logf("%+v", *s)
	if s.position == bare {
		return // what it does is measured, not demanded
	}
	if s.after != (left{}) {
		t.Errorf("leaked: %+v", s.after)
	}
	if s.met > 0 {
		t.Errorf("%d runs of whereabouts began while another was running", s.met)
	}
	if s.longest > deadline+slack {
		t.Errorf("a caller waited %v", s.longest)
	}
	if s.policy == "defer" && s.failed > 0 {
		t.Errorf("%d DELs failed", s.failed)
	}
}
