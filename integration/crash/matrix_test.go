//go:build crash || integration

package crash_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
)

// tally counts cells, by operation and call.
type tally struct {
	sync.Mutex
	run, failed map[string]map[string]int
	cells, bad  int
}

func (y *tally) add(op, call string, held bool) {
	y.Lock()
	defer y.Unlock()
	for _, m := range []*map[string]map[string]int{&y.run, &y.failed} {
		if *m == nil {
			*m = map[string]map[string]int{}
		}
		if (*m)[op] == nil {
			(*m)[op] = map[string]int{}
		}
	}
	y.run[op][call]++
	y.cells++
	if !held {
		y.failed[op][call]++
		y.bad++
	}
}

// String is the table: how many cells were run, and how many of them did not hold.
func (y *tally) String() string {
	var calls, ops []string
	for op, m := range y.run {
		ops = append(ops, op)
		for call := range m {
			if !slices.Contains(calls, call) {
				calls = append(calls, call)
			}
		}
	}
	slices.Sort(calls)
	slices.Sort(ops)
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 1, ' ', 0)
	fmt.Fprintf(w, "| killed in \t| %s \t| all held |\n", strings.Join(calls, " \t| "))
	fmt.Fprintf(w, "|---%s|---|\n", strings.Repeat("\t|---:", len(calls)))
	for _, op := range ops {
		fmt.Fprintf(w, "| %s ", op)
		for _, call := range calls {
			fmt.Fprintf(w, "\t| %s ", y.cell(op, call))
		}
		fmt.Fprintf(w, "\t| %s |\n", map[bool]string{true: "yes", false: "NO"}[len(y.failed[op]) == 0])
	}
	_ = w.Flush()
	fmt.Fprintf(&b, "\n%d cells, %d did not hold\n", y.cells, y.bad)
	return b.String()
}

func (y *tally) cell(op, call string) string {
	switch run, bad := y.run[op][call], y.failed[op][call]; {
	case run == 0:
		return "-"
	case bad == 0:
		return strconv.Itoa(run)
	default:
		return fmt.Sprintf("%d (%d NOT)", run, bad)
	}
}

// sample says which cells are run: see doc.go.
func sample(t *testing.T) (every, seed int) {
	every, seed = defaultEvery, 0
	for name, into := range map[string]*int{"CRASH_EVERY": &every, "CRASH_SEED": &seed} {
		if text := os.Getenv(name); text != "" {
			n, err := strconv.Atoi(text)
			if err != nil {
				t.Fatalf("%s=%s: %v", name, text, err)
			}
			*into = n
		}
	}
	return max(every, 1), seed
}

// wanted says whether an operation is to be run.
func wanted(name string) bool {
	only := os.Getenv("CRASH_ONLY")
	return only == "" || regexp.MustCompile(only).MatchString(name)
}

// changes are the calls that change records, queue or processes. What is left by
// a kill before another one is left by one before the next of these, too.
var changes = []string{"openat", "mkdirat", "linkat", "symlinkat", "renameat", "renameat2", "unlinkat", "write", "clone", "clone3", "fsync"}

// variants of a kill before a call: all four, or, in turn, one of them.
func variants(op operation, call string, n int) []variant {
	var all []variant
	for _, v := range []variant{{false, false}, {true, false}, {false, true}, {true, true}} {
		if (v.aged && !canAge()) || (op.goneAlready && !v.gone) || (op.lives && v != variant{}) {
			continue
		}
		all = append(all, v)
	}
	if !slices.Contains(changes, kind(call)) {
		return []variant{all[n%len(all)]}
	}
	return all
}

func TestKilledBeforeEachSystemCall(t *testing.T) {
	every, seed := sample(t)
	if !canAge() {
		t.Log("this machine is up for less than eleven minutes: no record can be ten minutes old, those cells are left out")
	}
	var table tally
	t.Cleanup(func() { t.Logf("every %d. cell, from %d on:\n\n%s", every, seed, &table) })
	number := 0
	for _, op := range operations() {
		if !wanted(op.name) {
			continue
		}
		var calls []string
		t.Run(op.name+"/unharmed", func(t *testing.T) {
			c := newCell(t, op)
			if calls, _, _ = c.traced(op, 0); len(calls) == 0 {
				t.Error("no system call was counted: that takes Linux 5.3")
			}
		})
		if t.Failed() || len(calls) == 0 {
			continue
		}
		for n, call := range calls {
			for _, v := range variants(op, call, n) {
				if number++; number%every != seed%every {
					continue
				}
				t.Run(fmt.Sprintf("%s/%d %s/%v", op.name, n+1, kind(call), v), func(t *testing.T) {
					t.Parallel()
					killBefore(t, op, n+1, v, &table)
				})
			}
		}
	}
}

func killBefore(t *testing.T, op operation, n int, v variant, table *tally) {
	c := newCell(t, op)
	calls, killed, _ := c.traced(op, n)
	if !killed {
		table.add(op.name, "(ended first)", true)
		return
	}
	call := calls[len(calls)-1]
	defer func() {
		table.add(op.name, kind(call), !t.Failed())
		if t.Failed() {
			t.Logf("killed before call %d, %s, after:\n%s", n, call, strings.Join(calls, "\n"))
		}
	}()
	c.judge(op, v)
}
