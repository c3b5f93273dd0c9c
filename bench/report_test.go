package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func counts(of ...int64) []sample {
	var s []sample
	for _, n := range of {
		s = append(s, sample{MinorFaults: n})
	}
	return s
}

func TestMedians(t *testing.T) {
	for _, c := range []struct {
		samples []sample
		want    int64
	}{
		{counts(7), 7},
		{counts(9, 1, 5), 5},
		{counts(4, 1, 3, 2), 2},
		{counts(1, 1, 1, 1000), 1},
	} {
		if got := medians(c.samples).MinorFaults; got != c.want {
			t.Errorf("median of %v = %d, want %d", c.samples, got, c.want)
		}
	}
	// Each figure's median is its own: no pair need have had them all.
	got := medians([]sample{{Switches: 1, Wall: 9}, {Switches: 2, Wall: 1}, {Switches: 3, Wall: 5}})
	if got.Switches != 2 || got.Wall != 5 {
		t.Errorf("medians = %+v, want 2 switches and 5 ns", got)
	}
}

func TestPlusAddsEveryFigure(t *testing.T) {
	one := sample{1, 2, 3, 4, 5, 6}
	if got, want := one.plus(one), (sample{2, 4, 6, 8, 10, 12}); got != want {
		t.Errorf("sum = %+v, want %+v", got, want)
	}
}

func summaries(bareFaults, floorFaults, guardFaults int64) []summary {
	return []summary{
		{Name: bare, Median: sample{MinorFaults: bareFaults}},
		{Name: floor, Median: sample{MinorFaults: floorFaults}},
		{Name: guarded, Median: sample{MinorFaults: guardFaults}},
	}
}

func TestFaultGates(t *testing.T) {
	for _, c := range []struct {
		name               string
		guard              int64
		overBare, overGoFl bool
	}{
		{"at both limits", 1800, true, true},
		{"just over both", 1801, false, false},
	} {
		g := faultGates(summaries(1000, 1500, c.guard))
		if g[0].ok() != c.overBare || g[1].ok() != c.overGoFl {
			t.Errorf("%s: gates = %+v", c.name, g)
		}
	}
	if g := faultGates(summaries(1000, 1600, 1900)); g[0].ok() || !g[1].ok() {
		t.Errorf("over bare's limit alone: gates = %+v", g)
	}
	if g := faultGates(summaries(1500, 1000, 1300)); !g[0].ok() || g[1].ok() {
		t.Errorf("over the floor's limit alone: gates = %+v", g)
	}
}

// TestBinaryGates has other commands stand in for the guard: the floor keeps to every limit, and this one runs processes
// by os/exec.
func TestBinaryGates(t *testing.T) {
	sizeAndLinked := func(source string, atLeast int64) (gate, gate) {
		t.Helper()
		bin := t.TempDir()
		path := filepath.Join(bin, "ipam-guard")
		build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", path, source)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if atLeast > 0 {
			if err := os.Truncate(path, atLeast); err != nil {
				t.Fatal(err)
			}
		}
		all, err := gates(bin, summaries(1, 1, 1))
		if err != nil {
			t.Fatal(err)
		}
		return all[len(all)-2], all[len(all)-1]
	}
	if size, linked := sizeAndLinked("./floor", 0); !size.ok() || !linked.ok() {
		t.Errorf("the floor: %+v, %+v, want both ok", size, linked)
	}
	if size, _ := sizeAndLinked("./floor", maxSize); !size.ok() {
		t.Errorf("a binary of just the size: %+v", size)
	}
	if size, _ := sizeAndLinked("./floor", maxSize+1); size.ok() {
		t.Errorf("a binary one byte too large: %+v", size)
	}
	if _, linked := sizeAndLinked(".", 0); linked.ok() || !strings.Contains(linked.Detail, "os/exec") {
		t.Errorf("a binary with os/exec: %+v", linked)
	}
}

func TestNoGuardIsNoPass(t *testing.T) {
	bin := t.TempDir()
	if _, err := gates(bin, nil); err == nil {
		t.Error("a guard that is not there passed")
	}
	if err := os.WriteFile(filepath.Join(bin, "ipam-guard"), []byte("text"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := gates(bin, nil); err == nil || !strings.Contains(err.Error(), "built from") {
		t.Errorf("error = %v, want one that says that it can't tell what this was built from", err)
	}
}

func TestPassedNeedsEveryGate(t *testing.T) {
	r := report{Gates: []gate{{Value: 1, Limit: 1}, {Value: 0, Limit: 0}}}
	if !r.passed() {
		t.Error("gates at their limits did not pass")
	}
	r.Gates = append(r.Gates, gate{Name: "forbidden packages linked", Value: 1, Detail: "net/http"})
	if r.passed() {
		t.Error("one gate was passed, and the run counts as good")
	}
	var text strings.Builder
	r.Variants = summaries(1, 1, 1)
	if err := r.print(&text, false); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), "TOO MUCH net/http") {
		t.Errorf("the report doesn't name what is linked:\n%s", text.String())
	}
}

func TestFiguresAreRatiosToBareAndFloor(t *testing.T) {
	rows := report{Variants: summaries(100, 200, 300)}.figures()
	if got := strings.Join(rows[3][:4], " "); got != "ipam-guard 300 3.00 1.50" {
		t.Errorf("row = %s", got)
	}
	for _, row := range rows {
		if len(row) != len(rows[0]) {
			t.Errorf("row %q has %d cells, the head %d", row, len(row), len(rows[0]))
		}
	}
}

func TestTable(t *testing.T) {
	rows := [][]string{{"a", "b"}, {"long name", "1"}}
	var text, markdown strings.Builder
	table(&text, rows, false)
	table(&markdown, rows, true)
	if want := "a          b\nlong name  1\n"; text.String() != want {
		t.Errorf("text = %q, want %q", text.String(), want)
	}
	if want := "| a | b |\n|---|---:|\n| long name | 1 |\n"; markdown.String() != want {
		t.Errorf("markdown = %q, want %q", markdown.String(), want)
	}
}

func TestUsage(t *testing.T) {
	for _, args := range []string{"-pairs 0", "-pairs x", "extra", "-warmup -1", "-nosuch"} {
		if got := run(strings.Fields(args), io.Discard, io.Discard); got != 2 {
			t.Errorf("bench %s: exit %d, want 2", args, got)
		}
	}
	if got := run([]string{"-bin", t.TempDir(), "-pairs", "1"}, io.Discard, io.Discard); got != 1 {
		t.Errorf("no binaries: exit %d, want 1", got)
	}
}

func TestOnlyAGatedRunFailsForItsFigures(t *testing.T) {
	for _, c := range []struct {
		gate, passed bool
		want         int
	}{{true, true, 0}, {true, false, 1}, {false, true, 0}, {false, false, 0}} {
		if got := exitCode(c.gate, c.passed); got != c.want {
			t.Errorf("exit code, gate %t and passed %t: %d, want %d", c.gate, c.passed, got, c.want)
		}
	}
}
