package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// storedNode is a guarded node with the real host-local.
func storedNode(t *testing.T) node {
	t.Helper()
	n := newNode(t)
	if err := os.Remove(n.path("cni", "host-local")); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(guardtest.Build(t, guardtest.HostLocal), n.path("cni", "host-local")); err != nil {
		t.Fatal(err)
	}
	n.write(t, "net.d/10-pods.conflist", fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "pods", "plugins": [
		{"type": "bridge", "ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": "203.0.113.0/24"}]]}}]}`, n.path("networks")))
	guardedNode(t, n)
	return n
}

// auditArgs are those of an audit that looks at nothing outside the node.
func (n node) auditArgs(command string, more ...string) []string {
	args := []string{command, "--conf-dir", n.path("net.d"), "--containers", n.path("containers")}
	if command == "audit" {
		args = append(args, "--data-dir", n.path("networks"), "--cni-path", n.path("cni"))
	}
	return append(args, more...)
}

type finding struct{ Kind, Address, Container, Network, Place, Why, Mend, Status, StatusWhy string }

func (f finding) String() string {
	return strings.TrimSpace(strings.Join([]string{f.Kind, f.Address, f.Container, f.Status}, " "))
}

// audit is what it found, in short.
func (n node) audit(t *testing.T, want int, more ...string) (short []string, long []finding) {
	t.Helper()
	out, status := n.tool(t, nil, n.auditArgs("audit", append(more, "--output", "json")...)...)
	text := out[max(0, strings.Index(out, "{\n")):]
	var answer struct {
		Kind  string
		Items []finding
	}
	dec := json.NewDecoder(strings.NewReader(text))
	if err := dec.Decode(&answer); err != nil || answer.Kind != "Audit" || status != want {
		t.Fatalf("exit status %d, want %d; %v\n%s", status, want, err, out)
	}
	for _, f := range answer.Items {
		short = append(short, f.String())
	}
	slices.Sort(short)
	return short, answer.Items
}

// plant writes a reservation as host-local does, so long ago that it is of no pod
// that is starting.
func (n node) plant(t *testing.T, name, text string) string {
	t.Helper()
	path := n.write(t, "networks/"+name, text)
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	return path
}

func same(t *testing.T, what string, have, want []string) {
	t.Helper()
	if slices.Sort(want); !slices.Equal(have, want) {
		t.Errorf("%s:\n%s\nwant:\n%s", what, strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
}

// What was planted in host-local's store is found, and nothing else.
func TestAuditFindsWhatWasPlanted(t *testing.T) {
	t.Parallel()
	n := storedNode(t)
	n.write(t, "containers", "# what runs\nlisted\nunguarded\n")
	for _, pod := range []string{"listed", "netns-lives", "owed", "robbed"} {
		n.plugin(t, "ADD", pod, "/proc/self/ns/net", true)
	}
	// Of a container that no list has, but whose record says that it lives; of one
	// without a record that runs; of one whose DEL failed.
	n.plant(t, "pods/203.0.113.77", "unguarded\r\neth0")
	if short, _ := n.audit(t, 0); len(short) > 0 {
		t.Errorf("all is well: %v", short)
	}
	owe(t, n, "owed")

	n.plant(t, "pods/203.0.113.100", "gone\r\neth0")
	n.plant(t, "pods/203.0.113.101", "gone-before-interfaces-were-noted")
	n.plant(t, "pods/203.0.113.102", "")
	n.plant(t, "pods/203.0.113.103", "listed\r\neth0")
	n.plant(t, "pods/203.0.113.104", "unguarded\r\neth0")
	n.plant(t, "pods/198.18.77.5", "other\r\neth0")
	n.plant(t, "pods/notes.txt", "mine")
	n.plant(t, "former/198.18.78.5", "former\r\neth0")
	n.write(t, "networks/pods/203.0.113.105", "starting\r\neth0")
	robbed := n.reservation(t, "robbed")
	if err := os.Remove(robbed); err != nil {
		t.Fatal(err)
	}
	short, long := n.audit(t, 3)
	same(t, "found", short, []string{
		"leaked 203.0.113.100 gone",
		"leaked 203.0.113.101 gone-before-interfaces-were-noted",
		"leaked 203.0.113.105 starting",
		"empty 203.0.113.102",
		"duplicate 203.0.113.103 listed",
		"duplicate 203.0.113.104 unguarded",
		"duplicate 203.0.113.77 unguarded",
		"foreign 198.18.77.5 other",
		"foreign 198.18.78.5 former",
		"foreign",
		"unheld " + filepath.Base(robbed) + " robbed",
	})
	for _, f := range long {
		if f.Why == "" || f.Mend == "" || f.Place == "" {
			t.Errorf("%+v", f)
		}
	}
	short, _ = n.audit(t, 4, "--release", "--dry-run")
	for _, want := range []string{
		"leaked 203.0.113.100 gone would be released",
		"leaked 203.0.113.101 gone-before-interfaces-were-noted would be released",
		"leaked 203.0.113.105 starting waits",
	} {
		if !slices.Contains(short, want) {
			t.Errorf("not %q: %q", want, short)
		}
	}
}

// owe leaves a pod's release to be done.
func owe(t *testing.T, n node, pod string) {
	t.Helper()
	real, away := n.path("cni", "host-local"), n.path("host-local.away")
	if err := os.Rename(real, away); err != nil {
		t.Fatal(err)
	}
	n.plugin(t, "DEL", pod, "", false)
	if err := os.Rename(away, real); err != nil {
		t.Fatal(err)
	}
}

// reservation is the file that host-local keeps for a container.
func (n node) reservation(t *testing.T, container string) string {
	t.Helper()
	files, err := filepath.Glob(n.path("networks", "pods", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasPrefix(read(t, file), container+"\r\n") {
			return file
		}
	}
	t.Fatalf("no reservation of %s in %v", container, files)
	return ""
}
