package journal_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ipam-guard/ipam-guard/pkg/journal"
)

// Each shows every record, says which are at work, and leaves all as they are.
func TestEach(t *testing.T) {
	j := &journal.Journal{Dir: t.TempDir(), Node: journal.Here()}
	see := func() (seen []string, closed map[string]error) {
		closed = map[string]error{}
		err := j.Each(
			func(r *journal.Record, busy bool) {
				seen = append(seen, fmt.Sprintf("%s %s %v", r.Container, r.State, busy))
			},
			func(k journal.Key, why error) { closed[k.Container] = why })
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
	// What is no folder is an error: nothing was seen, which is not the same as that nothing is there.
	j.Dir = file("b")
	if err := j.Each(nil, nil); err == nil {
		t.Error("no folder of records can be there, and no error")
	}
}
