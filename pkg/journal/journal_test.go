package journal_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ipam-guard/ipam-guard/pkg/journal"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("JOURNAL_CHILD"); dir != "" {
		child(dir)
	}
	os.Exit(m.Run())
}

// child takes the record of a key, says so and waits to be killed.
func child(dir string) {
	j := &journal.Journal{Dir: dir, Node: journal.Here()}
	e, _, err := j.Take(context.Background(), time.Time{}, key("c1"), adding(), func(string) {})
	fmt.Println("taken", err)
	for {
		time.Sleep(time.Hour)
		runtime.KeepAlive(e) // with it, its lock
	}
}

func key(container string) journal.Key {
	return journal.Key{Network: "net", Container: container, IfName: "eth0", Delegate: "fake"}
}

func adding() *journal.Record {
	return &journal.Record{
		Facts:  journal.Facts{Netconf: []byte("{\"a\": \"\xff\"}\n"), Args: "A=1", Path: "/p", Binary: "/p/fake"},
		Status: journal.Status{State: journal.Adding},
	}
}

func open(t *testing.T) *journal.Journal {
	t.Helper()
	return &journal.Journal{Dir: filepath.Join(t.TempDir(), "state"), Node: journal.Here()}
}

func take(t *testing.T, j *journal.Journal, k journal.Key, first *journal.Record) (*journal.Entry, bool) {
	t.Helper()
	e, made, err := j.Take(t.Context(), time.Time{}, k, first, func(s string) { t.Error("warning:", s) })
	if err != nil {
		t.Fatal(err)
	}
	return e, made
}

// files lists all that is in the journal, folders aside.
func files(t *testing.T, j *journal.Journal) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(j.Dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && d.Name() != "cursor" {
			rel, _ := filepath.Rel(j.Dir, path)
			names = append(names, rel)
		}
		return err
	})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return names
}

func TestLifeOfARecord(t *testing.T) {
	j := open(t)
	e, made := take(t, j, key("c1"), adding())
	if !made || e.State != journal.Adding || e.Started {
		t.Fatalf("made %v: %+v", made, e.Record)
	}
	update(t, e, func(r *journal.Record) { r.Started = true })
	update(t, e, func(r *journal.Record) { r.State, r.Result = journal.Attached, []byte("{}") })
	e.Close()

	e, made = take(t, j, key("c1"), nil)
	if made || e.State != journal.Attached || !e.Started || string(e.Netconf) != "{\"a\": \"\xff\"}\n" || string(e.Result) != "{}" || e.Args != "A=1" {
		t.Fatalf("read back: %+v", e.Record)
	}
	if got := files(t, j); len(got) != 2 || !strings.HasPrefix(got[0], "queue/fake/a-") || got[1] != "records/c1/eth0@net@fake" {
		t.Fatalf("files: %v", got)
	}
	update(t, e, func(r *journal.Record) { r.State, r.Owed = journal.Releasing, journal.Netns })
	if err := e.Remove(); err != nil {
		t.Fatal(err)
	}
	e.Close()
	if got := files(t, j); len(got) != 0 {
		t.Errorf("left over: %v", got)
	}
	if e, _ := take(t, j, key("c1"), nil); e != nil {
		t.Errorf("still there: %+v", e.Record)
	}
}

func update(t *testing.T, e *journal.Entry, change func(*journal.Record)) {
	t.Helper()
	if err := e.Update(change); err != nil {
		t.Fatal(err)
	}
}

func TestOneAtATime(t *testing.T) {
	j := open(t)
	first, _ := take(t, j, key("c1"), adding())
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, _, err := j.Take(ctx, time.Time{}, key("c1"), adding(), nil)
	took := time.Since(began)
	var busy *journal.BusyError
	if !errors.As(err, &busy) || busy.Key != key("c1") || busy.Waited <= 0 || busy.Waited > took || took < 50*time.Millisecond {
		t.Fatalf("Take of a taken record, in %s: %v", took, err)
	}
	if e := j.Try(key("c1")); e != nil {
		t.Error("Try had a taken record")
	}
	other, _ := take(t, j, key("c2"), adding())
	other.Close()

	// Whoever waits gets what the one before left, or makes its own.
	for _, remove := range []bool{false, true} {
		type taken struct {
			e    *journal.Entry
			made bool
			err  error
		}
		got := make(chan taken)
		go func() {
			e, made, err := j.Take(t.Context(), time.Time{}, key("c1"), adding(), nil)
			got <- taken{e, made, err}
		}()
		if remove {
			if err := first.Remove(); err != nil {
				t.Error(err)
			}
		}
		first.Close()
		next := <-got
		if next.err != nil || next.made != remove {
			t.Fatalf("removed %v, made anew %v, %v", remove, next.made, next.err)
		}
		first = next.e
	}
}

// The last record of a container takes its folder along, at any moment of the
// making of another one.
func TestFolderGoesAndComes(t *testing.T) {
	j := open(t)
	var wg sync.WaitGroup
	for _, ifname := range []string{"eth0", "net1", "net2"} {
		wg.Go(func() {
			k := key("c1")
			k.IfName = ifname
			for range 1000 {
				e, _, err := j.Take(t.Context(), time.Time{}, k, adding(), nil)
				if err == nil {
					err = e.Remove()
					e.Close()
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if got := files(t, j); len(got) != 0 {
		t.Errorf("left over: %v", got)
	}
}

// A writer that was killed leaves its record, unlocked.
func TestKilledWriter(t *testing.T) {
	j := open(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "JOURNAL_CHILD="+j.Dir)
	out, err := cmd.StdoutPipe()
	if err != nil || cmd.Start() != nil {
		t.Fatal(err)
	}
	line := make([]byte, 100)
	if n, err := out.Read(line); err != nil || !strings.HasPrefix(string(line[:n]), "taken <nil>") {
		t.Fatalf("child: %q %v", line[:n], err)
	}
	if j.Try(key("c1")) != nil {
		t.Fatal("had the record while its writer lives")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	e, made := take(t, j, key("c1"), adding())
	if made || e.State != journal.Adding {
		t.Errorf("made %v, %+v", made, e.Record)
	}
}

// Case 22: what can't be read is set aside and told of, and the operation has a
// record of its own.
func TestUnreadableRecords(t *testing.T) {
	junk := map[string]func(path string) error{
		"empty":     func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"truncated": func(path string) error { return os.Truncate(path, 20) },
		"junk":      func(path string) error { return os.WriteFile(path, []byte("\x00\x01junk\n"), 0o600) },
		"no version": func(path string) error {
			return os.WriteFile(path, []byte(`{"state":"attached","container":"c1","ifname":"eth0","delegate":"fake"}`+"\n"), 0o600)
		},
		"a folder": func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
		"a link":   func(path string) error { return errors.Join(os.Remove(path), os.Symlink("/etc/passwd", path)) },
	}
	for name, spoil := range junk {
		t.Run(name, func(t *testing.T) {
			j := open(t)
			e, _ := take(t, j, key("c1"), adding())
			e.Close()
			path := filepath.Join(j.Dir, "records/c1/eth0@net@fake")
			if err := spoil(path); err != nil {
				t.Fatal(err)
			}
			var said []string
			e, made, err := j.Take(t.Context(), time.Time{}, key("c1"), adding(), func(s string) { said = append(said, s) })
			if err != nil || !made {
				t.Fatalf("made %v, %v", made, err)
			}
			e.Close()
			aside, _ := os.ReadDir(filepath.Join(j.Dir, "aside"))
			if len(said) != 1 || !strings.Contains(said[0], path) || len(aside) != 1 {
				t.Errorf("said %q, aside %v", said, aside)
			}
		})
	}
}

// A last line without its end was never written: the record is what it was.
func TestTornLine(t *testing.T) {
	j := open(t)
	e, _ := take(t, j, key("c1"), adding())
	update(t, e, func(r *journal.Record) { r.State = journal.Attached })
	e.Close()
	path := filepath.Join(j.Dir, "records/c1/eth0@net@fake")
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = f.WriteString(`{"state":"rel`)
	f.Close()
	e, _ = take(t, j, key("c1"), nil)
	if e.State != journal.Attached {
		t.Fatalf("%+v", e.Record)
	}
	update(t, e, func(r *journal.Record) { r.State = journal.Releasing })
	e.Close()
	e, _ = take(t, j, key("c1"), nil)
	if e.State != journal.Releasing {
		t.Errorf("after the next line: %+v", e.Record)
	}
}

// What was cut off an ADD's record may have committed it. Who reads it first
// mends it, and the next one still knows.
func TestTornLineOfAnADD(t *testing.T) {
	j := open(t)
	netns := filepath.Join(t.TempDir(), "netns")
	if err := os.WriteFile(netns, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	first := adding()
	first.Started, first.Netns = true, j.Place(netns)
	e, _ := take(t, j, key("c1"), first)
	e.Close()
	path := filepath.Join(j.Dir, "records/c1/eth0@net@fake")
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, append(text, `{"state":"att`...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		e, _ := take(t, j, key("c1"), nil)
		if j.Releasable(&e.Record, journal.Anyone) {
			t.Errorf("anyone may release it: %+v", e.Status)
		}
		e.Close()
	}
	if err := os.Remove(netns); err != nil {
		t.Fatal(err)
	}
	e, _ = take(t, j, key("c1"), nil)
	if !j.Releasable(&e.Record, journal.Anyone) {
		t.Errorf("its netns is gone: %+v", e.Status)
	}
	e.Close()
}

// Case 68: a newer version's record is left as it is.
func TestNewerVersion(t *testing.T) {
	j := open(t)
	e, _ := take(t, j, key("c1"), adding())
	e.Close()
	path := filepath.Join(j.Dir, "records/c1/eth0@net@fake")
	text := []byte(`{"version":99,"state":["?"],"x":1}` + "\n")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	e, made := take(t, j, key("c1"), adding())
	if made || !e.Newer {
		t.Fatalf("made %v, newer %v", made, e.Newer)
	}
	update(t, e, func(r *journal.Record) { r.State = journal.Releasing })
	if err := e.Remove(); err != nil {
		t.Fatal(err)
	}
	e.Close()
	if got, _ := os.ReadFile(path); !bytes.Equal(got, text) {
		t.Errorf("now %q", got)
	}
}

// One golden for each version that was ever written.
func TestEarlierVersionsAreRead(t *testing.T) {
	golden, err := os.ReadFile("testdata/v1.record")
	if err != nil {
		t.Fatal(err)
	}
	j := open(t)
	path := filepath.Join(j.Dir, "records/c1/eth0@net@fake")
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, golden, 0o600)); err != nil {
		t.Fatal(err)
	}
	e, _ := take(t, j, key("c1"), nil)
	want := journal.Place{Path: "/run/netns/a", Dev: 4, Inode: 4026532999, MntNS: 4026531832, Boot: "11111111-2222"}
	if e.State != journal.Releasing || e.Owed != journal.Netns || string(e.Netconf) != `{"name":"net"}` || string(e.Result) != `{"ips":[]}` || e.Netns != want || e.Tries != 3 {
		t.Errorf("%+v", e.Record)
	}
	update(t, e, func(r *journal.Record) { r.Tries = 4 })
	after, _ := os.ReadFile(path)
	if !bytes.HasPrefix(after, golden) || !bytes.Contains(golden, []byte(`"futureKey"`)) {
		t.Errorf("what we don't know of is gone: %s", after)
	}
}

func TestOtherRecordOfTheInterface(t *testing.T) {
	j := open(t)
	k := key("c1")
	put := func(change func(*journal.Key)) {
		other := k
		change(&other)
		e, _ := take(t, j, other, adding())
		e.Close()
	}
	put(func(k *journal.Key) { k.IfName = "net1" })
	put(func(k *journal.Key) { k.Container = "c2" })
	if other, ok := j.Other(k); ok {
		t.Errorf("found %v", other)
	}
	put(func(k *journal.Key) { k.Network = "old name" })
	if other, ok := j.Other(k); !ok || other.Network != "old name" || other.IfName != "eth0" {
		t.Errorf("found %v, %v", other, ok)
	}
	put(func(k *journal.Key) { k.Delegate = "../x" })
	if other, ok := j.Other(k); ok {
		t.Errorf("two, but found %v", other)
	}
}

func TestNamesOfFiles(t *testing.T) {
	j := open(t)
	long := strings.Repeat("x", 300)
	keys := []journal.Key{
		{"n", "c", "e", "d"}, {"n", "c", "e", ""}, {"", "c", "e", "d"}, {"n@d", "c", "e", "d"}, {"n", "c", "e@n", "d"},
		{long, "c", "e", "d"}, {long + "y", "c", "e", "d"}, {"n", long, "e", long}, {"n", "..", "..", "."}, {"n", "c/../d", "e", "d"}, {"n", "\x00\n", "é", "d"},
	}
	for i, k := range keys {
		if k.Delegate == "" {
			k.Delegate = " "
		}
		keys[i] = k
		e, made := take(t, j, k, adding())
		if !made {
			t.Errorf("%q has another's record", k)
		}
		e.Close()
	}
	for _, k := range keys {
		if e, _ := take(t, j, k, nil); e == nil || e.Key != k {
			t.Errorf("%q is not found", k)
		}
	}
}

// A record that is written for weeks stays small.
func TestManyUpdates(t *testing.T) {
	j := open(t)
	e, _ := take(t, j, key("c1"), adding())
	update(t, e, func(r *journal.Record) { r.State, r.Owed = journal.Releasing, journal.Now })
	why := strings.Repeat("why ", 100)
	for i := range 2000 {
		update(t, e, func(r *journal.Record) { r.Tries, r.LastError = i, why })
	}
	st, err := os.Stat(filepath.Join(j.Dir, "records/c1/eth0@net@fake"))
	if err != nil || st.Size() > 300<<10 {
		t.Fatalf("%v bytes, %v", st.Size(), err)
	}
	if j.Try(key("c1")) != nil {
		t.Fatal("the lock was lost")
	}
	e.Close()
	if e = j.Try(key("c1")); e == nil || e.Tries != 1999 || e.State != journal.Releasing {
		t.Errorf("%+v", e)
	}
}

// FuzzRecord: any bytes as a record give a record or are set aside.
func FuzzRecord(f *testing.F) {
	golden, _ := os.ReadFile("testdata/v1.record")
	f.Add(golden)
	f.Add(golden[:len(golden)-7])
	f.Add([]byte(`{"version":2}` + "\n"))
	f.Add([]byte("\n\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		j := &journal.Journal{Dir: t.TempDir(), Node: journal.Here()}
		path := filepath.Join(j.Dir, "records/c1/eth0@net@fake")
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, text, 0o600)); err != nil {
			t.Fatal(err)
		}
		warned := false
		e, made, err := j.Take(t.Context(), time.Time{}, key("c1"), adding(), func(string) { warned = true })
		if err != nil || made != warned {
			t.Fatalf("made %v, warned %v, %v", made, warned, err)
		}
		if e.Newer {
			return
		}
		if !made && (e.Version < 1 || e.Container == "" || e.State == "") {
			t.Fatalf("%+v", e.Record)
		}
		if err := e.Update(func(r *journal.Record) { r.Tries++ }); err != nil {
			t.Fatal(err)
		}
		if err := e.Remove(); err != nil {
			t.Fatal(err)
		}
	})
}

// What can't be read still says by its name whose it is.
func TestWalkNamesWhatItCantRead(t *testing.T) {
	j := open(t)
	keys := map[journal.Key]bool{
		key("c1"): true, {Network: "a@b", Container: "c2", IfName: "é%", Delegate: "fake"}: true,
		{Network: "net", Container: strings.Repeat("x", 200), IfName: "eth0", Delegate: "fake"}: false,
	}
	for k := range keys {
		e, _ := take(t, j, k, adding())
		e.Close()
	}
	for _, file := range files(t, j) {
		if strings.HasPrefix(file, "records/") {
			if err := os.WriteFile(filepath.Join(j.Dir, file), []byte("junk"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	var named, nameless int
	j.Walk("", "", func(k journal.Key) { t.Errorf("read %v", k) }, func(k journal.Key) {
		switch {
		case k.Container == "":
			nameless++
		case keys[k]:
			named++
		default:
			t.Errorf("named %q", k)
		}
	})
	if named != 2 || nameless != 1 {
		t.Errorf("%d named, %d nameless", named, nameless)
	}
}
