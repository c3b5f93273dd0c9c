package trial

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Document is written by the tests with the tag results, a section each.
const Document = "docs/results-runtimes.md"

const heading = `# What was seen on real runtimes

Written by ` + "`make results`" + `, nothing in it by hand. A pod's IPAM plugin misbehaves, on a runtime that people run, without
the guard and with it in each of its positions.

- **guard**: none, or its position; with ` + "`defer`" + `, ` + "`policy.onError`" + ` is that, else ` + "`fail`" + `. All else is built in, but in the rows in
  which something hangs: there times are cut so that nobody waits for two minutes.
- **Run, Stop, Remove**: what each call of the runtime answered, and the time it took. The misbehaviour is there when the pod is
  stopped or, where it is ADD's, from the start. *deadline* is a caller that gave up.
- **pod**: how the runtime lists it after these calls.
- **left at once**: addresses, processes and network namespaces, a second later at most.
- **asked again**: then the delegate is well. Stop and Remove, as kubelet repeats them until both answer OK.
- **records**: of the guard, before as many other pods (one at least) came and went, a second apart.
- **left at last**: addresses, processes and network namespaces after that, ten seconds later at most.
- **two at once**: whether two runs of the delegate ever overlapped.
`

// order is that of the sections.
func order() []string { return []string{"containerd1", "containerd2", "cost", "podman", "crio"} }

// Section writes one section of the document anew and leaves the others alone.
func Section(t testing.TB, name, text string) {
	t.Helper()
	path := "../../" + Document
	unlock, err := alone(path)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	old, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	doc := heading
	for _, s := range order() {
		section := find(string(old), s)
		if s == name {
			section = text
		}
		if section != "" {
			doc += fmt.Sprintf("\n<!-- %s -->\n%s\n<!-- end of %s -->\n", s, strings.TrimSpace(section), s)
		}
	}
	err = os.WriteFile(path+".new", []byte(doc), 0o644)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func find(doc, name string) string {
	m := regexp.MustCompile(`(?s)<!-- ` + name + ` -->\n(.*?)\n<!-- end of ` + name + ` -->`).FindStringSubmatch(doc)
	if m == nil {
		return ""
	}
	return m[1]
}

// alone keeps other test processes from the document.
func alone(path string) (unlock func(), err error) {
	f, err := os.Open(path[:strings.LastIndex(path, "/")])
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		_ = f.Close()
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}

// Where says when and on what something was measured.
func Where(versions ...string) string {
	var uts unix.Utsname
	kernel := "of an unknown version"
	if unix.Uname(&uts) == nil {
		kernel = unix.ByteSliceToString(uts.Release[:])
	}
	return fmt.Sprintf("Measured %s: %s; bridge of the %s, guard %s; kernel %s.\n",
		time.Now().UTC().Format("2006-01-02"), strings.Join(versions, ", "), ModuleVersion("github.com/containernetworking/plugins"), version(), kernel)
}
