//go:build integration || crash

package model_test

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// What a failure prints, to see it again.
var (
	seedFlag   = flag.Uint64("seed", 0, "run the sequence of this seed only")
	opsFlag    = flag.String("ops", "", "run these operations in place of the seed's own")
	shrinkFlag = flag.Bool("shrink", false, "leave operations out as long as the sequence still fails")
)

func TestMain(m *testing.M) {
	// Most of the time a sequence waits for a delegate that hangs.
	_ = flag.Set("test.parallel", "4")
	guardtest.Main(m)
}

// runs is how many sequences there are.
func runs(t *testing.T) uint64 {
	text := os.Getenv("MODEL_RUNS")
	if text == "" {
		return 60
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		t.Fatalf("MODEL_RUNS: %v", err)
	}
	return n
}

// No address without a record, none that lives released, never two delegates at
// once, and at the end nothing left over: whatever happens in between.
func TestModel(t *testing.T) {
	first, last := uint64(1), runs(t)
	if *seedFlag != 0 {
		first, last = *seedFlag, *seedFlag
	}
	for seed := first; seed <= last; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			s, ops := newSetup(seed)
			if *opsFlag != "" {
				ops = parseOps(t, *opsFlag)
			}
			failed := !run(t, s, ops)
			if failed && *shrinkFlag {
				shrink(t, s, ops)
			}
		})
	}
}

// run runs a sequence as a test of its own and reports whether it went well.
func run(t *testing.T, s setup, ops []op) bool {
	return t.Run(s.name(), func(t *testing.T) {
		w := newWorld(t, s)
		defer func() {
			if t.Failed() || *seedFlag != 0 {
				t.Logf("seed %d, %s; what happened:\n%s\nagain: %s", s.seed, s, strings.Join(w.trace, "\n"), command(s, ops))
			}
		}()
		for _, o := range ops {
			w.step(t, o)
			if t.Failed() {
				return
			}
		}
		w.end(t)
	})
}

func command(s setup, ops []op) string {
	return fmt.Sprintf("go test -tags=integration ./integration/model -run TestModel -count=3 -seed %d -ops '%s'", s.seed, format(ops))
}

// shrink leaves out one operation after the other, if what remains fails in one
// of three runs.
func shrink(t *testing.T, s setup, ops []op) {
	fails := func(ops []op) bool {
		for range 3 {
			if !run(t, s, ops) {
				return true
			}
		}
		return false
	}
	for i := 0; i < len(ops); {
		less := append(append([]op(nil), ops[:i]...), ops[i+1:]...)
		if fails(less) {
			ops = less
		} else {
			i++
		}
	}
	t.Logf("all that is needed: %s", command(s, ops))
}
