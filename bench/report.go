package main

import (
	"debug/buildinfo"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
)

// A report is one run: what is printed, and what is kept as JSON.
type report struct {
	Pairs    int       `json:"pairs"`
	Machine  string    `json:"machine"`
	Versions string    `json:"versions"`
	Variants []summary `json:"variants"`
	Gates    []gate    `json:"gates"`
}

// A summary is one variant: medians, each figure's for itself, and the pairs that they come from.
type summary struct {
	Name    string   `json:"name"`
	Median  sample   `json:"median"`
	Samples []sample `json:"samples"`
}

func summarize(variants []variant, samples [][]sample) []summary {
	all := make([]summary, len(variants))
	for i, v := range variants {
		all[i] = summary{Name: v.name, Median: medians(samples[i]), Samples: samples[i]}
	}
	return all
}

func medians(samples []sample) sample {
	return sample{
		MinorFaults: median(samples, func(s sample) int64 { return s.MinorFaults }),
		Switches:    median(samples, func(s sample) int64 { return s.Switches }),
		Involuntary: median(samples, func(s sample) int64 { return s.Involuntary }),
		User:        median(samples, func(s sample) time.Duration { return s.User }),
		System:      median(samples, func(s sample) time.Duration { return s.System }),
		Wall:        median(samples, func(s sample) time.Duration { return s.Wall }),
	}
}

// median takes the lower of two middle values, so that a count stays a count. It needs at least one sample.
func median[T int64 | time.Duration](samples []sample, of func(sample) T) T {
	values := make([]T, len(samples))
	for i, s := range samples {
		values[i] = of(s)
	}
	slices.Sort(values)
	return values[(len(values)-1)/2]
}

func (r report) passed() bool {
	return !slices.ContainsFunc(r.Gates, func(g gate) bool { return !g.ok() })
}

func (r report) print(w io.Writer, markdown bool) error {
	text := &strings.Builder{}
	fmt.Fprintf(text, "%d pairs of ADD and DEL per variant, interleaved; medians of a pair.\n%s.\n%s.\n\n",
		r.Pairs, r.Machine, r.Versions)
	table(text, r.figures(), markdown)
	fmt.Fprintln(text)
	table(text, r.verdicts(), markdown)
	_, err := io.WriteString(w, text.String())
	return err
}

// figures are the rows of the main table, its head first.
func (r report) figures() [][]string {
	rows := [][]string{{"variant", "minor faults", "/bare", "/floor", "switches", "/bare", "/floor",
		"user ms", "system ms", "wall ms", "/bare", "/floor"}}
	byName := map[string]sample{}
	for _, s := range r.Variants {
		byName[s.Name] = s.Median
	}
	for _, s := range r.Variants {
		row := []string{s.Name}
		for _, of := range []func(sample) float64{faults, switches} {
			row = append(row, fmt.Sprintf("%.0f", of(s.Median)), ratio(s.Median, byName[bare], of), ratio(s.Median, byName[floor], of))
		}
		row = append(row, ms(s.Median.User), ms(s.Median.System))
		row = append(row, ms(s.Median.Wall), ratio(s.Median, byName[bare], wall), ratio(s.Median, byName[floor], wall))
		rows = append(rows, row)
	}
	return rows
}

func (r report) verdicts() [][]string {
	rows := [][]string{{"gate", "ipam-guard", "at most", "verdict"}}
	for _, g := range r.Gates {
		verdict := "ok"
		if !g.ok() {
			verdict = strings.TrimSpace("TOO MUCH " + g.Detail)
		}
		rows = append(rows, []string{g.Name, number(g.Value), number(g.Limit), verdict})
	}
	return rows
}

func faults(s sample) float64   { return float64(s.MinorFaults) }
func switches(s sample) float64 { return float64(s.Switches) }
func wall(s sample) float64     { return float64(s.Wall) }

func ratio(s, base sample, of func(sample) float64) string {
	return fmt.Sprintf("%.2f", of(s)/of(base))
}
func ms(d time.Duration) string { return fmt.Sprintf("%.2f", float64(d)/1e6) }

// number prints counts and ratios alike, with what is needed to see on which side of a limit one lies.
func number(x float64) string { return strconv.FormatFloat(math.Round(x*1000)/1000, 'f', -1, 64) }

// table writes rows, of which the first is the head, as aligned text or as Markdown.
func table(w io.Writer, rows [][]string, markdown bool) {
	if !markdown {
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, row := range rows {
			fmt.Fprintln(tw, strings.Join(row, "\t"))
		}
		tw.Flush()
		return
	}
	for i, row := range rows {
		fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			fmt.Fprintf(w, "|---%s|\n", strings.Repeat("|---:", len(row)-1))
		}
	}
}

func machine() string {
	var u unix.Utsname
	kernel := "unknown"
	if unix.Uname(&u) == nil {
		kernel = unix.ByteSliceToString(u.Release[:])
	}
	return fmt.Sprintf("%d cores, %s, Linux %s", runtime.NumCPU(), runtime.GOARCH, kernel)
}

// versions names what was measured, as the binaries themselves have it.
func versions(o options) (string, error) {
	guard, err := buildinfo.ReadFile(filepath.Join(o.bin, "ipam-guard"))
	if err != nil {
		return "", err
	}
	delegate, err := buildinfo.ReadFile(filepath.Join(o.bin, "cni", "host-local"))
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("ipam-guard %s (%s), host-local %s (%s)",
		o.version, guard.GoVersion, delegate.Main.Version, delegate.GoVersion), nil
}
