package main_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
	"github.com/ipam-guard/ipam-guard/pkg/journal"
)

// spoilt are ways in which a record can be no record. Each changes the file.
var spoilt = map[string]func(path string) error{
	"0 bytes":           func(path string) error { return os.Truncate(path, 0) },
	"cut short":         func(path string) error { return os.Truncate(path, 100) },
	"junk":              func(path string) error { return os.WriteFile(path, []byte("{junk\n"), 0o600) },
	"zeros":             func(path string) error { return os.WriteFile(path, make([]byte, 4096), 0o600) },
	"empty object":      func(path string) error { return os.WriteFile(path, []byte("{}\n"), 0o600) },
	"null":              func(path string) error { return os.WriteFile(path, []byte("null\n"), 0o600) },
	"wrong types":       func(path string) error { return os.WriteFile(path, []byte(`{"version":1,"state":7}`+"\n"), 0o600) },
	"no such state":     func(path string) error { return extended(path, `{"state":"odd"}`+"\n") },
	"junk after a line": func(path string) error { return extended(path, "junk\n") },
	"far too large":     func(path string) error { return os.Truncate(path, 9<<20) },
	"a folder":          func(path string) error { return replaced(path, os.Mkdir(path+".new", 0o755)) },
	"a symbolic link":   func(path string) error { return replaced(path, os.Symlink("/etc/passwd", path+".new")) },
	"a fifo":            func(path string) error { return replaced(path, syscall.Mkfifo(path+".new", 0o666)) },
	"closed to us":      func(path string) error { return os.Chmod(path, 0o000) },
}

func extended(path, more string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(more)
	return err
}

func replaced(path string, err error) error {
	if err == nil {
		err = os.Remove(path)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	return err
}

// Case 22: a record that can't be read is set aside, with one warning; the call
// goes by stdin (cni #1055, multus #1087).
func TestRecordThatCantBeRead(t *testing.T) {
	t.Parallel()
	for name, spoil := range spoilt {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := guardtest.New(t)
			del, add := marked("of the DEL", nil), marked("of the ADD", nil)
			if name == "closed to us" { // nothing is, to root
				asNobody(t, n, &del)
				add.Credential = del.Credential
			}

			// By its own DEL, which goes by stdin then.
			n.Run(t, "ADD", "c1", add).OK(t)
			path := spoilRecord(t, n, "c1", spoil)
			n.Run(t, "DEL", "c1", del).OK(t)
			wantSetAside(t, n, path, 1)
			if have := fmt.Sprint(marks(t, n)); have != "[of the DEL]" {
				t.Errorf("netconfs %s", have)
			}
			wantLeases(t, n)
			wantStates(t, n)

			// By another ADD of its key.
			n.Run(t, "ADD", "c1", add).OK(t)
			spoilRecord(t, n, "c1", spoil)
			n.Run(t, "ADD", "c1", add).OK(t)
			wantSetAside(t, n, path, 2)
			wantStates(t, n, "c1/eth0 attached")

			// By somebody else's DEL, which comes across it: it stands for
			// nothing that may be released.
			spoilRecord(t, n, "c1", spoil)
			n.Run(t, "DEL", "c2", del).OK(t)
			wantSetAside(t, n, path, 3)
			wantStates(t, n)
			if len(n.Leases(t)) != 2 {
				t.Errorf("leases %v", n.Leases(t))
			}
		})
	}
}

func spoilRecord(t *testing.T, n *guardtest.Node, container string, spoil func(string) error) (path string) {
	t.Helper()
	path = recordFile(t, n, container)
	if err := spoil(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// wantSetAside: the newest call warned once, of what is there now.
func wantSetAside(t *testing.T, n *guardtest.Node, path string, files int) {
	t.Helper()
	aside, _ := os.ReadDir(filepath.Join(n.StateDir, "aside"))
	if len(aside) != files {
		t.Errorf("%d files set aside, want %d", len(aside), files)
	}
	line := lastLine(t, n)
	if w := warnings(line); len(w) != 1 || !strings.Contains(w[0], "set aside as "+filepath.Join(n.StateDir, "aside")) || !strings.Contains(w[0], path) {
		t.Errorf("warnings %q", w)
	}
}

// Case 22, second part: SIGKILL at any moment leaves every record readable, or
// none (cni #1055, multus #1087).
func TestSIGKILLNeverLeavesHalfARecord(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	j := journalOf(n)
	o := ask(nil, Object{"retry": Object{"attempts": 1}})
	usual := n.Run(t, "ADD", "c0", o).OK(t).Took
	for i := range 50 {
		verb := []string{"ADD", "DEL"}[random.IntN(2)]
		p := n.Start(t, verb, fmt.Sprintf("c%d", random.IntN(4)), o)
		select {
		case <-p.Done():
		case <-time.After(time.Duration(random.Int64N(int64(usual)))):
			p.Kill()
		}
		r := p.Wait(t)
		j.Walk("", "", func(journal.Key) {}, func(k journal.Key) {
			t.Fatalf("the record of %s can't be read after kill %d, in %s: %+v", k, i, verb, r)
		})
	}
	for i := range 4 {
		n.Run(t, "DEL", fmt.Sprintf("c%d", i), o).OK(t)
	}
	wantStates(t, n)
	wantLeases(t, n)
	n.NoOverlap(t)
	if aside, _ := os.ReadDir(filepath.Join(n.StateDir, "aside")); len(aside) != 0 {
		t.Errorf("set aside: %v", aside)
	}
}
