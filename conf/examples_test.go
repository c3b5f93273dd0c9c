package conf_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// example is a fenced JSON block of a document. What follows "json" on its first line says what it is:
//
//	guard          the guard object of a netconf
//	node           the node's file
//	netconf        what the guard gets on stdin
//	before, after  a plugin of a conflist, without the guard and with it
type example struct {
	where string // "README.md:12"
	is    string
	text  string
}

var fence = regexp.MustCompile("(?ms)^```json ?([a-z]*)\n(.*?)^```$")

func examples(t *testing.T, is ...string) []example {
	t.Helper()
	var found []example
	for _, path := range documents(t) {
		doc := document(t, path)
		for _, m := range fence.FindAllStringSubmatchIndex(doc, -1) {
			e := example{fmt.Sprintf("%s:%d", path, strings.Count(doc[:m[0]], "\n")+1), doc[m[2]:m[3]], doc[m[4]:m[5]]}
			if len(is) == 0 || slices.Contains(is, e.is) {
				found = append(found, e)
			}
		}
	}
	if len(found) == 0 {
		t.Fatalf("no examples of %v in the documents", is)
	}
	return found
}

func TestExamplesAreJSON(t *testing.T) {
	known := []string{"", "guard", "node", "netconf", "before", "after"}
	for _, e := range examples(t) {
		if !json.Valid([]byte(e.text)) {
			t.Errorf("%s is not JSON: %s", e.where, e.text)
		}
		if !slices.Contains(known, e.is) {
			t.Errorf("%s: nobody checks examples of %q", e.where, e.is)
		}
	}
}

// withGuard is a netconf for host-local with a guard object, as text.
func withGuard(guard string) []byte {
	return fmt.Appendf(nil, `{"cniVersion": "1.0.0", "name": "pods", "type": "bridge",
		"ipam": {"type": "ipam-guard", "delegate": {"type": "host-local"}, "guard": %s}}`, guard)
}

// An ADD refuses every setting that is unknown or out of its limits.
func TestGuardExamplesAreAccepted(t *testing.T) {
	r := newRecorder(t, guardtest.New(t), "host-local")
	for _, e := range examples(t, "guard") {
		if got := r.call(t, "ADD", withGuard(e.text)); got.RC != 0 {
			t.Errorf("%s is refused: %s", e.where, got.Stdout)
		}
	}
}

func TestNetconfExamplesWork(t *testing.T) {
	n := guardtest.New(t)
	r := newRecorder(t, n, "host-local")
	for _, e := range examples(t, "netconf") {
		if got := r.call(t, "ADD", []byte(e.text)); got.RC != 0 {
			t.Errorf("%s: %s", e.where, got.Stdout)
		}
	}
}

func TestNodeFileExamplesAreAccepted(t *testing.T) {
	n := guardtest.New(t)
	for _, e := range examples(t, "node") {
		var file struct{ Delegates map[string]any }
		if err := json.Unmarshal([]byte(e.text), &file); err != nil {
			t.Fatalf("%s: %v", e.where, err)
		}
		n.SetNodeFile(t, e.text)
		for _, name := range append(slices.Sorted(maps.Keys(file.Delegates)), "host-local") {
			r := newRecorder(t, n, name)
			conf := n.Netconf(guardtest.Conf{Delegate: guardtest.Object{"type": name}})
			if got := r.call(t, "ADD", conf); got.RC != 0 {
				t.Errorf("%s, for %s: %s", e.where, name, got.Stdout)
			}
		}
	}
}

// The README's conflist before and after is a pair like those in conf/.
func TestBeforeAndAfter(t *testing.T) {
	before, after := examples(t, "before"), examples(t, "after")
	if len(before) != len(after) {
		t.Fatalf("%d examples before, %d after", len(before), len(after))
	}
	for i := range before {
		inject := injections["text"]
		sameForDelegate(t,
			inject(t, []byte(before[i].text), "pods", "1.0.0"),
			inject(t, []byte(after[i].text), "pods", "1.0.0"))
	}
}

// The log's fields and the lock file's are all documented, and no others are.
func TestFieldsAreDocumented(t *testing.T) {
	n := guardtest.New(t)
	n.InstallScript(t, "host-local", `until grep -q pgid "$LOCK"; do sleep 0.01; done
cp "$LOCK" "$RECORD"
echo '{"code": 100, "msg": "no"}'
exit 1`)
	record := recorder{n, n.Dir + "/lock-file"}
	env := []string{
		"RECORD=" + record.file, "LOCK=" + n.LockPath("delegate-host-local"),
		"TRACEPARENT=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
	n.Run(t, "DEL", "c1", guardtest.Opts{Stdin: withGuard(`{"unknown": 1}`), Env: env}).Error(t)
	n.Run(t, "ADD", "c1", guardtest.Opts{Stdin: withGuard(`{}`), Env: env}).Error(t) // has to release it first
	logged := n.Log(t)[0]
	maps.Copy(logged, n.Log(t)[1])

	var lock guardtest.Object
	if err := json.Unmarshal(record.stdin(t), &lock); err != nil {
		t.Fatal(err)
	}
	for section, object := range map[string]guardtest.Object{"Lock files": lock, "The log": logged} {
		documented := slices.Sorted(slices.Values(fields(t, section)))
		if diff := cmp.Diff(slices.Sorted(maps.Keys(object)), documented); diff != "" {
			t.Errorf("docs/configuration.md, %s (-real +documented):\n%s", section, diff)
		}
	}
}

// fields are the names in the first column of a section's table of fields.
func fields(t *testing.T, section string) []string {
	t.Helper()
	_, table, ok := strings.Cut(sectionOf(t, "docs/configuration.md", "## "+section), "| field | |\n")
	if !ok {
		t.Fatalf("no table of fields in the section %q", section)
	}
	table, _, _ = strings.Cut(table, "\n\n")
	var names []string
	for _, row := range strings.Split(table, "\n") {
		column, _, _ := strings.Cut(strings.TrimPrefix(row, "|"), "|")
		for _, name := range code.FindAllStringSubmatch(column, -1) {
			names = append(names, name[1])
		}
	}
	return names
}
