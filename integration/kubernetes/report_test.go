//go:build kubernetes

package kubernetes_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// A report is what a run has measured, and becomes the document.
type report struct {
	versions map[string]string

	mu       sync.Mutex
	events   []event
	storms   []storm
	findings []finding
}

func newReport(versions map[string]string) *report { return &report{versions: versions} }

func (r *report) add(e event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func (r *report) addStorm(s storm) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.storms = append(r.storms, s)
}

func (r *report) find(f finding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.findings = append(r.findings, f)
}

// write replaces the document, whole, and only if nothing of it is missing.
func (r *report) write(path string, took time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if want := len(rows()) * len(variants()); len(r.events) != want || len(r.storms) != len(gales()) || len(r.findings) == 0 {
		return fmt.Errorf("%s: not written: %d of %d rows, %d of %d storms, %d findings; run all tests for it",
			path, len(r.events), want, len(r.storms), len(gales()), len(r.findings))
	}
	var b strings.Builder
	r.head(&b, took)
	r.faults(&b)
	r.messages(&b)
	r.weather(&b)
	r.limit(&b)
	part := path + ".part"
	if err := os.WriteFile(part, []byte(b.String()), 0o644); err != nil {
		return err
	}
	return os.Rename(part, path)
}

func (r *report) head(b *strings.Builder, took time.Duration) {
	version, err := exec.Command("git", "describe", "--tags", "--always", "--dirty").Output()
	if err != nil {
		version = []byte("of unknown version")
	}
	fmt.Fprintf(b, intro, time.Now().UTC().Format("2 January 2006"), strings.TrimSpace(string(version)), r.versions["whereabouts"],
		r.versions["kube-apiserver"], r.versions["etcd"], runtime.Version(), runtime.NumCPU(), took.Round(time.Minute))
}

// faults are a table with a line for each fault and variant, in their order.
func (r *report) faults(b *strings.Builder) {
	b.WriteString(faultsText)
	table(b, "fault", "guard", "caller", "exit", "took", "requests", "runs", "left at once", "repeated", "other pods", "left at the end")
	for _, row := range rows() {
		for i, v := range variants() {
			e := r.event(row, v)
			name := ""
			if i == 0 {
				name = row.name
			}
			line(b, name, v.guard(), v.who(), e.code, seconds(e.took), e.requests, e.runs, e.atOnce, e.repeats, e.pods(), e.verdict())
		}
	}
}

func (r *report) event(row row, v variant) event {
	i := slices.IndexFunc(r.events, func(e event) bool { return e.name == row.name && e.variant == v })
	return r.events[i] // write has counted them
}

func (v variant) guard() string {
	if v.position == bare {
		return "none"
	}
	return v.position + ", `" + v.policy + "`"
}

func (v variant) who() string {
	if v.position == bare {
		return "any"
	}
	return v.caller()
}

func (l left) String() string {
	if l == (left{}) {
		return "nothing"
	}
	return fmt.Sprintf("%s, %s", count(l.addresses, "address"), count(l.reservations, "reservation"))
}

func count(n int, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case strings.HasSuffix(what, "s"):
		return fmt.Sprint(n, " ", what, "es")
	}
	return fmt.Sprint(n, " ", what, "s")
}

func (e event) pods() string {
	if e.more == 0 {
		return fmt.Sprint(e.others)
	}
	return fmt.Sprintf("%d (and %d until no record was left)", e.others, e.more)
}

func (e event) verdict() string {
	switch {
	case e.position == bare && e.after == left{}:
		return "nothing: a leak was not provoked this time"
	case e.after.addresses > 0:
		return "**" + e.after.String() + "**"
	}
	return e.after.String()
}

// messages are what guarded callers were told where it was an error, one for
// each fault.
func (r *report) messages(b *strings.Builder) {
	b.WriteString(messagesText)
	table(b, "fault", "told")
	for _, row := range rows() {
		for _, v := range variants() {
			if e := r.event(row, v); e.code != 0 {
				line(b, row.name, e.told)
				break
			}
		}
	}
}

func (r *report) weather(b *strings.Builder) {
	fmt.Fprintf(b, stormText, r.storms[0].pods, seconds(slowness))
	table(b, "", "bare", "`fail`, kubelet repeats", "`defer`, nobody repeats")
	for _, l := range []struct {
		name string
		of   func(storm) any
	}{
		{"addresses leaked", func(s storm) any { return fmt.Sprintf("**%d of %d**", s.after.addresses, s.pods) }},
		{"all callers had their answer after", func(s storm) any { return seconds(s.answered) }},
		{"the longest call", func(s storm) any { return seconds(s.longest) }},
		{"calls, failed", func(s storm) any { return fmt.Sprintf("%d, %d", s.calls, s.failed) }},
		{"taken then", func(s storm) any { return s.atOnce }},
		{"records pending then", func(s storm) any { return s.pending }},
		{"other pods until none was pending", func(s storm) any { return s.others }},
		{"the last address was free after", func(s storm) any { return s.free() }},
		{"requests", func(s storm) any { return s.requests }},
		{"runs of whereabouts' DEL", func(s storm) any { return s.runs }},
		{"two runs at once", func(s storm) any { return s.met }},
	} {
		cells := []any{l.name}
		for _, v := range gales() {
			i := slices.IndexFunc(r.storms, func(s storm) bool { return s.variant == v })
			cells = append(cells, l.of(r.storms[i]))
		}
		line(b, cells...)
	}
}

func (s storm) free() string {
	if s.after.addresses > 0 {
		return "never"
	}
	return seconds(s.lastFree)
}

func (r *report) limit(b *strings.Builder) {
	b.WriteString(limitText)
	table(b, "tried", "the reservation is")
	slices.SortFunc(r.findings, func(x, y finding) int { return strings.Compare(x.tried, y.tried) })
	for _, f := range r.findings {
		line(b, f.tried, map[bool]string{true: "gone", false: "still there"}[f.gone])
	}
	b.WriteString(limitEnd)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

func table(b *strings.Builder, heads ...string) {
	b.WriteString("| " + strings.Join(heads, " | ") + " |\n|" + strings.Repeat("---|", len(heads)) + "\n")
}

func line(b *strings.Builder, cells ...any) {
	for _, c := range cells {
		text := strings.ReplaceAll(strings.ReplaceAll(fmt.Sprint(c), "\n", " "), "|", `\|`)
		b.WriteString("| " + text + " ")
	}
	b.WriteString("|\n")
}
