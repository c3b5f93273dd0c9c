package journal_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipam-guard/ipam-guard/pkg/journal"
)

// Each shows every record, says which are at work, and leaves all as they are.
func TestEach(t *testing.T) {
	j := &journal.Journal{Dir: t.TempDir(), Node: journal.Here()}
	see := func(containers ...string) (seen []string, closed map[string]error) {
		closed = map[string]error{}
		var one sync.Mutex
		err := j.Each(
			func(r *journal.Record, busy bool) {
				one.Lock()
				defer one.Unlock()
				seen = append(seen, fmt.Sprintf("%s %s %v", r.Container, r.State, busy))
			},
			func(k journal.Key, why error) {
				one.Lock()
				defer one.Unlock()
				closed[k.Container] = why
			}, containers...)
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(seen)
		return seen, closed
	}
	if seen, closed := see(); len(seen)+len(closed) > 0 {
		t.Errorf("no folder: %v, %v", seen, closed)
	}
	for _, container := range []string{"a", "b", "torn", "newer"} {
		k := journal.Key{Network: "net", Container: container, IfName: "eth0", Delegate: "fake"}
		e, _, err := j.Take(t.Context(), time.Time{}, k, &journal.Record{Status: journal.Status{State: journal.Adding}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if container == "a" {
			t.Cleanup(e.Close)
			continue
		}
		e.Close()
	}
	file := func(container string) string { return filepath.Join(j.Dir, "records", container, "eth0@net@fake") }
	for container, text := range map[string]string{"torn": `{"version":`, "newer": `{"version":99}` + "\n"} {
		if err := os.WriteFile(file(container), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the second time all is as it was
		seen, closed := see()
		if !slices.Equal(seen, []string{"a adding true", "b adding false"}) {
			t.Errorf("seen %v", seen)
		}
		if len(closed) != 2 || !errors.Is(closed["newer"], journal.ErrNewer) || errors.Is(closed["torn"], journal.ErrNewer) {
			t.Errorf("closed %v", closed)
		}
	}
	if seen, closed := see("a", "t"); !slices.Equal(seen, []string{"a adding true"}) || len(closed) != 1 || closed["torn"] == nil {
		t.Errorf("of a and t: %v, %v", seen, closed)
	}
	// What is no folder is an error: nothing was seen, which is not the same as that nothing is there.
	j.Dir = file("b")
	if err := j.Each(nil, nil); err == nil {
		t.Error("no folder of records can be there, and no error")
	}
}

// A container is found by how it begins, whatever its folder's name makes of it:
// escaped, or cut where it is long. And a record is read whole, however long.
func TestEachThatBegins(t *testing.T) {
	j := &journal.Journal{Dir: t.TempDir(), Node: journal.Here()}
	long, dots, netconf := strings.Repeat("long.", 60), ".a:b/c%é", []byte(strings.Repeat("0123456789", 30_000))
	others := []string{"b", "b-1", "c"}
	for _, container := range append([]string{long + "1", long + "2", dots}, others...) {
		k := journal.Key{Network: "net", Container: container, IfName: "eth0", Delegate: "fake"}
		first := &journal.Record{Facts: journal.Facts{Netconf: append([]byte(container), netconf...)}, Status: journal.Status{State: journal.Adding}}
		e, _, err := j.Take(t.Context(), time.Time{}, k, first, nil)
		if err != nil {
			t.Fatal(err)
		}
		e.Close()
	}
	for begin, want := range map[string][]string{
		long: {long + "1", long + "2"}, long[:3]: {long + "1", long + "2"}, long[:149]: {long + "1", long + "2"},
		dots: {dots}, dots[:1]: {dots}, dots[:4]: {dots}, dots + "x": nil, "b": {"b", "b-1"}, "d": nil, "%": nil,
	} {
		var one sync.Mutex
		var seen []string
		err := j.Each(func(r *journal.Record, _ bool) {
			one.Lock()
			defer one.Unlock()
			seen = append(seen, r.Container)
			if string(r.Netconf) != r.Container+string(netconf) {
				t.Errorf("%.20s: netconf of %d bytes", r.Container, len(r.Netconf))
			}
		}, nil, begin)
		if slices.Sort(seen); err != nil || !slices.Equal(seen, want) {
			t.Errorf("%.20s: %.20q, %v", begin, seen, err)
		}
	}
}

// What stands in a record's place and is none is said to be so.
func TestEachOfOthers(t *testing.T) {
	j := &journal.Journal{Dir: t.TempDir(), Node: journal.Here()}
	dir := filepath.Join(j.Dir, "records", "x")
	if err := os.MkdirAll(filepath.Join(dir, "folder@net@fake"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "pipe@net@fake"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link@net@fake")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "large@net@fake"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, "large@net@fake"), 9<<20); err != nil {
		t.Fatal(err)
	}
	var one sync.Mutex
	closed := map[string]string{}
	err := j.Each(nil, func(k journal.Key, why error) {
		one.Lock()
		defer one.Unlock()
		closed[k.IfName] = why.Error()
	})
	const none = "too large for a record, or not a regular file"
	want := map[string]string{"folder": none, "pipe": none, "large": none, "link": "read " + dir + "/link@net@fake: too many levels of symbolic links"}
	if err != nil || !maps.Equal(closed, want) {
		t.Errorf("%v, %v", closed, err)
	}
}

// A container's folder that can't be looked into is told of: what it has must not
// look as if it weren't there. What is no folder has none.
func TestEachOfAFolderThatIsClosed(t *testing.T) {
	j := &journal.Journal{Dir: t.TempDir(), Node: journal.Here()}
	records := filepath.Join(j.Dir, "records")
	err := os.Mkdir(records, 0o700)
	if err == nil {
		err = os.Symlink("loop", filepath.Join(records, "loop"))
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(records, "file"), nil, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	err = j.Each(
		func(r *journal.Record, _ bool) { t.Errorf("a record: %+v", r) },
		func(k journal.Key, why error) {
			if !errors.Is(why, unix.ELOOP) {
				t.Errorf("%s: %v", k.Container, why)
			}
			told = append(told, k.Container)
		})
	if err != nil || !slices.Equal(told, []string{"loop"}) {
		t.Errorf("told of %v, %v; want loop", told, err)
	}
}
