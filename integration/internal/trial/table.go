package trial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"unicode"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// String is short: OK, or what kind of failure, and the time it took.
func (a Answer) String() string {
	kind := "OK"
	switch {
	case a.Err == nil:
	case errors.Is(a.Err, context.DeadlineExceeded) || status.Code(a.Err) == codes.DeadlineExceeded:
		kind = "deadline"
	default:
		kind = "error"
	}
	return fmt.Sprintf("%s %.1f s", kind, a.Took.Seconds())
}

func answers(all []Answer) string {
	if len(all) == 0 {
		return "-"
	}
	var words []string
	for _, a := range all {
		words = append(words, a.String())
	}
	return strings.Join(words, ", ")
}

func (l Left) String() string { return fmt.Sprintf("%d / %d / %d", l.Addresses, l.Processes, l.Netns) }

// Table writes trials as a table, in the order in which they come.
func Table(w io.Writer, trials []*Trial) {
	fmt.Fprintln(w, "| misbehaviour | guard | Run | Stop | Remove | pod | left at once | asked again | pod then | records | left at last | two at once |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|---|---:|---|---|")
	last := ""
	trials = slices.DeleteFunc(trials, func(r *Trial) bool { return r == nil }) // those that failed
	for _, r := range trials {
		name := r.Fault
		if name == last {
			name = ""
		}
		last = r.Fault
		twice := "no"
		if r.Overlap {
			twice = "**yes**"
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %d | %s | %s |\n", name, r.Position, r.Run, answers(r.Stops),
			answers(r.Remove), r.State, r.AtOnce, answers(r.Again), r.StateThen, r.Records, r.After, twice)
	}
	for _, r := range trials {
		if r.Note != "" {
			fmt.Fprintf(w, "\n%s, guard: %s: %s.\n", r.Fault, r.Position, r.Note)
		}
	}
}

// ID is a name as a test's may be.
func ID(name string) string {
	id := strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return r
		}
		return '-'
	}, name)
	for strings.Contains(id, "--") {
		id = strings.ReplaceAll(id, "--", "-")
	}
	return strings.Trim(id, "-")
}

// Check fails the test where the guard was there and did not keep its promise.
// believed says whether this runtime acts on what a DEL answers.
func (r *Trial) Check(t testing.TB, believed bool) {
	t.Helper()
	if !r.Guarded {
		return
	}
	if r.After != (Left{}) || r.RecordsEnd != 0 {
		t.Errorf("left at last: %s addresses, processes, namespaces, and %d records", r.After, r.RecordsEnd)
	}
	if r.StateThen != Gone {
		t.Errorf("stuck: the pod is %s after the delegate is well again", r.StateThen)
	}
	if r.Overlap {
		t.Error("two delegates ran at once")
	}
	for _, a := range r.Others {
		if a.Err != nil {
			t.Errorf("another pod, once the delegate is well: %v", a.Err)
		}
	}
	if believed && !r.Deferring && r.AtOnce.Addresses > 0 {
		for _, a := range append(r.Stops, r.Remove...) {
			if a.Err == nil {
				t.Errorf("a DEL that failed was taken for a success: Stop %s, Remove %s", answers(r.Stops), answers(r.Remove))
			}
		}
	}
}
