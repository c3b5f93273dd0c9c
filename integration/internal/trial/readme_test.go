package trial_test

import (
	"os"
	"strings"
	"testing"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile("../../../" + path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// section is what stands below a heading, up to the next one.
func section(t *testing.T, doc, heading string) string {
	t.Helper()
	_, after, found := strings.Cut(doc, "\n## "+heading)
	if !found {
		t.Fatalf("no heading begins with %q", heading)
	}
	text, _, _ := strings.Cut(after, "\n## ")
	return text
}

// rows are the lines of all tables in a text, without their heads. A first cell
// that is empty is that of the line above.
func rows(text string) (all [][]string) {
	var above string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.Trim(strings.TrimSpace(cells[i]), "*")
		}
		if cells[0] == "" {
			cells[0] = above
		}
		above = cells[0]
		if strings.HasPrefix(cells[0], "---") {
			all = all[:len(all)-1]
			continue
		}
		all = append(all, cells)
	}
	return all
}

// addresses is how many were left at last in a line of a document that begins
// so, "?" if there is none.
func addresses(text, misbehaviour, guard string) string {
	for _, cells := range rows(text) {
		if cells[0] != misbehaviour || cells[1] != guard {
			continue
		}
		if last := cells[len(cells)-1]; strings.Contains(last, "address") || last == "nothing" { // whereabouts
			return strings.Replace(strings.Fields(last)[0], "nothing", "0", 1)
		}
		return strings.Fields(cells[10])[0]
	}
	return "?"
}

// README quotes the documents, and what it says of them is so.
func TestREADMEQuotesResults(t *testing.T) {
	runtimes, whereabouts := read(t, "docs/results-runtimes.md"), read(t, "docs/results-whereabouts.md")
	storm := map[string][]string{}
	for _, cells := range rows(section(t, whereabouts, "A storm")) {
		storm[cells[0]] = cells[1:]
	}
	quoted := rows(section(t, read(t, "README.md"), "What was seen"))
	if len(quoted) < 8 {
		t.Fatalf("README quotes %d lines", len(quoted))
	}
	for _, q := range quoted {
		on, what, bare, guarded := q[0], q[1], q[2], q[3]
		var have []string
		switch {
		case strings.Contains(what, "storm"):
			leaked := storm["addresses leaked"]
			have = []string{strings.Fields(leaked[0])[0], strings.Fields(leaked[1])[0]}
		case on == "whereabouts":
			have = []string{addresses(whereabouts, what, "none"), addresses(whereabouts, what, "ipam, `fail`")}
		default:
			text := section(t, runtimes, on)
			have = []string{addresses(text, what, "none"), addresses(text, what, "ipam")}
		}
		if have[0] != bare || have[1] != guarded {
			t.Errorf("README says of %s, %s: %s and %s; the document: %v", on, what, bare, guarded, have)
		}
	}
}

// The figures of what a pod costs are those of the document, to a millisecond.
func TestREADMEQuotesCost(t *testing.T) {
	readme := strings.Join(strings.Fields(section(t, read(t, "README.md"), "What was seen")), " ")
	for _, cells := range rows(section(t, read(t, "docs/results-runtimes.md"), "What it costs a pod")) {
		if strings.HasPrefix(cells[0], "host-local") {
			continue
		}
		for _, figure := range cells[1:] {
			whole, _, _ := strings.Cut(figure, ".")
			if figure != "" && !strings.Contains(readme, whole+" ms") {
				t.Errorf("README doesn't have %s ms of %s: %s", whole, cells[0], figure)
			}
		}
	}
}
