package main_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// gc is what became of each record, in short.
func (n node) gc(t *testing.T, want int, more ...string) []string {
	t.Helper()
	out, status := n.tool(t, nil, n.auditArgs("gc", append(more, "--output", "json")...)...)
	text := out[max(0, strings.Index(out, "{\n")):]
	var answer struct {
		Kind  string
		Items []struct{ Name, Status, Why string }
	}
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&answer); err != nil || answer.Kind != "GC" || status != want {
		t.Fatalf("exit status %d, want %d; %v\n%s", status, want, err, out)
	}
	var short []string
	for _, item := range answer.Items {
		container, _, _ := strings.Cut(item.Name, "/")
		short = append(short, container+" "+item.Status)
	}
	slices.Sort(short)
	return short
}

// gc releases what is owed, and leaves what lives: what is listed, what has a
// netns, what just lost it, and networks that want no GC.
func TestGC(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(t, "net.d/10-pods.conflist", podsConf)
	guardedNode(t, n)
	n.write(t, "containers", "listed\n")
	netns := n.write(t, "netns", "")
	for _, pod := range []string{"listed", "lost", "owed-later"} {
		n.plugin(t, "ADD", pod, netns, true)
	}
	n.plugin(t, "ADD", "netns-lives", "/proc/self/ns/net", true)
	n.write(t, "fake/script.json", `{"DEL": "exit 1 \"away\" 100"}`)
	n.plugin(t, "ADD", "owed", "/proc/self/ns/net", true)
	n.plugin(t, "DEL", "owed", "", false)
	n.plugin(t, "DEL", "owed-later", netns, false) // its netns is still there

	same(t, "dry run", n.gc(t, 4, "--dry-run"), []string{"owed would be released", "owed-later waits"})
	same(t, "failing", n.gc(t, 1), []string{"owed failed", "owed-later waits"})
	n.write(t, "fake/script.json", `{"DEL": "free"}`)
	conf := read(t, n.path("net.d", "10-pods.conflist"))
	n.write(t, "net.d/10-pods.conflist", strings.Replace(conf, "{", `{"disableGC": "true",`, 1))
	same(t, "disabled", n.gc(t, 0), []string{"owed left", "owed-later left"})
	n.write(t, "net.d/10-pods.conflist", conf)

	if err := os.Remove(netns); err != nil {
		t.Fatal(err)
	}
	same(t, "well", n.gc(t, 0), []string{"owed released", "owed-later released", "lost waits"})
	if n.leases(t) != 3 {
		t.Errorf("%d leases", n.leases(t))
	}
	// That its netns is gone was noted.
	if !regexp.MustCompile(`"goneSince":[1-9]`).MatchString(read(t, n.recordOf("lost"))) {
		t.Error("not noted")
	}
}

func (n node) recordOf(container string) string {
	return n.path("state", "records", container, "eth0@pods@host-local")
}

// A configuration that can't be read may forbid it: nothing is released.
func TestGCOfUnreadable(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(t, "net.d/10-pods.conflist", podsConf)
	owing(t, n)
	n.write(t, "containers", "# nothing\n")
	n.write(t, "net.d/20-broken.conflist", `{"name": "pods", "disableGC": true, "plugins": [}`)
	out, status := n.tool(t, nil, n.auditArgs("gc")...)
	if status != 1 || !strings.Contains(out, "may say disableGC") || n.leases(t) != 1 {
		t.Errorf("exit status %d, %d leases\n%s", status, n.leases(t), out)
	}
	n.write(t, "net.d/20-broken.conflist", `{"name": "pods", "disableGC": 3, "plugins": []}`)
	if out, status := n.tool(t, nil, n.auditArgs("gc")...); status != 1 || !strings.Contains(out, "want true or false") {
		t.Errorf("exit status %d\n%s", status, out)
	}
}
