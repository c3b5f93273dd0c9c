package trial

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// ModuleVersion is the name and version of one that go.mod has.
func ModuleVersion(path string) string {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", path).Output()
	if err != nil {
		return path
	}
	return path[strings.LastIndex(path, "/")+1:] + " " + strings.TrimSpace(string(out))
}

// version is the guard's: the commit, and whether anything was changed since. The
// document doesn't count, it is being written.
func version() string {
	commit, err := exec.Command("git", "describe", "--tags", "--always").Output()
	if err != nil {
		return "dev"
	}
	changed, err := exec.Command("git", "status", "--porcelain", "--", ":/", ":(exclude,top)"+Document).Output()
	if err != nil || len(changed) > 0 {
		return strings.TrimSpace(string(commit)) + "-dirty"
	}
	return strings.TrimSpace(string(commit))
}

// Suite is all faults on one runtime.
type Suite struct {
	Section, Name string
	Versions      []string
	Kind          Kind
	Positions     []Position
	Try           func(*testing.T, Position, Fault) *Trial
	More          func(*testing.T) string // what else the section has
}

// Results tries all of a suite, in every position, and writes the section.
func (s Suite) Results(t *testing.T) {
	faults := Of(s.Kind)
	all := make([]*Trial, len(faults)*len(s.Positions))
	done := t.Run(s.Section, func(t *testing.T) {
		for i, f := range faults {
			for j, p := range s.Positions {
				t.Run(ID(f.Name)+"/"+ID(p.Name), func(t *testing.T) {
					t.Parallel()
					all[i*len(s.Positions)+j] = s.Try(t, p, f)
				})
			}
		}
	})
	if !t.Failed() && !slices.ContainsFunc(all, func(r *Trial) bool { return !r.Guarded && r.After.Addresses > 0 }) {
		t.Error("nothing leaks without the guard: this table shows nothing")
	}
	var text strings.Builder
	text.WriteString("## " + s.Name + "\n\n" + Where(s.Versions...) + "\n")
	Table(&text, all)
	if s.More != nil {
		text.WriteString("\n" + s.More(t))
	}
	if !done || t.Failed() {
		t.Logf("not written to %s:\n%s", Document, text.String())
		return
	}
	Section(t, s.Section, text.String())
}
