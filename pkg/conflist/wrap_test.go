package conflist_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ipam-guard/ipam-guard/pkg/conflist"
)

func read(t testing.TB, doc []byte) conflist.Conf {
	t.Helper()
	c, err := conflist.Read(doc)
	if err != nil {
		t.Fatalf("%q: %v", doc, err)
	}
	return c
}

// wrapAll puts a guard around every plugin, or every ipam object, that has none.
func wrapAll(c conflist.Conf, plugin bool, settings []byte) (doc []byte, wrapped int) {
	var edits []conflist.Edit
	for _, p := range c.Plugins {
		switch {
		case plugin && !p.Guarded():
			edits = append(edits, p.WrapPlugin(settings)...)
		case !plugin && p.IPAM.Object.Doc != nil && !p.IPAM.Guarded():
			edits = append(edits, p.WrapIPAM(settings)...)
		}
	}
	return c.Apply(edits...), len(edits) / 2
}

func unwrap(t testing.TB, doc []byte) (original []byte, exact bool) {
	t.Helper()
	original, exact, err := read(t, doc).Unwrap()
	if err != nil {
		t.Fatalf("%q: %v", doc, err)
	}
	return original, exact
}

// Case 50: wrapped three times is wrapped once, byte for byte, and unwrap gives
// the original bytes, in each position and with one guard inside the other.
func roundTrip(t testing.TB, doc, settings []byte) (wrapped int) {
	t.Helper()
	for _, positions := range [][]bool{{false}, {true}, {false, true}, {true, false}} {
		once := doc
		for _, plugin := range positions {
			var n int
			once, n = wrapAll(read(t, once), plugin, settings)
			again, more := wrapAll(read(t, once), plugin, settings)
			if more != 0 || !bytes.Equal(again, once) {
				t.Fatalf("wrapped again:\n%s\nwas:\n%s", again, once)
			}
			wrapped += n
		}
		back, exact := unwrap(t, once)
		if !exact || !bytes.Equal(back, doc) {
			t.Fatalf("unwrap of\n%s\ngives (exact %v)\n%s\nwant\n%s", once, exact, back, doc)
		}
	}
	return wrapped
}

// corpus are configurations as the networks that are around leave them on a
// node.
func corpus(t testing.TB) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob("testdata/corpus/*")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	docs := map[string][]byte{}
	for _, path := range files {
		if docs[filepath.Base(path)], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	return docs
}

func TestRoundTripOfCorpus(t *testing.T) {
	for name, doc := range corpus(t) {
		t.Run(name, func(t *testing.T) {
			for _, settings := range []string{"", `{}`, "{\n \"timeout\": {\"del\": \"15s\"}}"} {
				var s []byte
				if settings != "" {
					s = []byte(settings)
				}
				if roundTrip(t, doc, s) == 0 {
					t.Error("nothing was wrapped")
				}
			}
		})
	}
}

// Case 52: outside of what is inserted no byte changes: numbers, escapes, order,
// unknown keys.
func TestWrapInserts(t *testing.T) {
	doc := ` {"x":9007199254740993,"plugins":[{"ipam" : {"n":1e3, "type":"a","s":"\u003c<&" } ,"type":"b","capabilities" :{"ips": true}}]}` + "\r\n"
	c := read(t, []byte(doc))
	for _, tt := range []struct {
		name  string
		edits []conflist.Edit
		want  string
	}{
		{"ipam", c.Plugins[0].WrapIPAM(nil),
			strings.Replace(strings.Replace(doc, `{"n"`, `{"type": "ipam-guard", "delegate": {"n"`, 1), `" } ,`, `" }} ,`, 1)},
		{"ipam, settings", c.Plugins[0].WrapIPAM([]byte(`{"gc":"own"}`)),
			strings.Replace(strings.Replace(doc, `{"n"`, `{"type": "ipam-guard", "delegate": {"n"`, 1), `" } ,`, `" }, "guard": {"gc":"own"}} ,`, 1)},
		{"plugin", c.Plugins[0].WrapPlugin(nil), // Case 56: capabilities stay to be seen.
			strings.Replace(strings.Replace(doc, `[{`, `[{"type": "ipam-guard", "capabilities": {"ips": true}, "delegate": {`, 1), `}]}`, `}}]}`, 1)},
	} {
		if got := string(c.Apply(tt.edits...)); got != tt.want {
			t.Errorf("%s:\n%s\nwant\n%s", tt.name, got, tt.want)
		}
	}
	single := ` {"name":"n","cniVersion":"1.0.0","type":"b"} `
	s := read(t, []byte(single))
	want := ` {"type": "ipam-guard", "cniVersion": "1.0.0", "name": "n", "delegate": {"name":"n","cniVersion":"1.0.0","type":"b"}} `
	if got := string(s.Apply(s.Plugins[0].WrapPlugin(nil)...)); got != want {
		t.Errorf("one plugin:\n%s\nwant\n%s", got, want)
	}
}

// What was written into a wrapped file since is kept, and it is told that this
// is not what wrap left.
func TestUnwrapOfChanged(t *testing.T) {
	for _, tt := range []struct {
		name, doc, want string
		exact           bool
	}{
		{"another place", `{"type":"b","mtu":1,"ipam":{"type": "ipam-guard", "delegate": {"type":"a"}}}`,
			`{"type":"b","mtu":1,"ipam":{"type":"a"}}`, true},
		{"inside the delegate", `{"ipam":{"type": "ipam-guard", "delegate": {"type":"a", "range":"new"}}}`,
			`{"ipam":{"type":"a", "range":"new"}}`, true},
		{"formatted anew", "{\"ipam\": {\n  \"type\": \"ipam-guard\",\n  \"delegate\": {\"type\": \"a\"}\n}}",
			`{"ipam": {"type": "a"}}`, false},
		{"beside the delegate", `{"ipam":{"type": "ipam-guard", "routes":[], "delegate": {"type":"a","routes":[1] }, "guard": {}}}`,
			`{"ipam":{"type":"a","routes":[] }}`, false},
		{"order", `{"ipam":{"guard":{"gc":"own"},"delegate":{"type":"a"},"type":"ipam-guard","x":1}}`,
			`{"ipam":{"type":"a","x":1}}`, false},
		{"plugin", `{"plugins":[{"type":"ipam-guard","capabilities":{"ips":true},"mtu":9,"delegate":{"type":"b","capabilities":{"ips":true},"delegate":{"x":1}}}]}`,
			`{"plugins":[{"type":"b","capabilities":{"ips":true},"delegate":{"x":1},"mtu":9}]}`, false},
	} {
		got, exact := unwrap(t, []byte(tt.doc))
		if string(got) != tt.want || exact != tt.exact {
			t.Errorf("%s: exact %v\n%s\nwant\n%s", tt.name, exact, got, tt.want)
		}
	}
}

// Case 62: a guard in position plugin around one in position ipam is told from
// a guard inside a guard.
func TestReadRefuses(t *testing.T) {
	for doc, want := range map[string]string{
		"\ufeff{}":                              "byte order mark",
		`{"a":1,"A":2}`:                         `"A" twice`,
		`{"plugins":[{"type":"b","type":"c"}]}`: `plugins[0] has "type" twice`,
		`{"ipam":{"type":"a","Type":"b"}}`:      `the plugin: ipam has "Type" twice`,
		`{"ipam":{"type":"ipam-guard","delegate":{"type":"a","x":1,"x":2}}}`:                      `the plugin: ipam: delegate has "x" twice`,
		`{"ipam":{"type":"ipam-guard","delegate":{"type":"ipam-guard","delegate":{"type":"a"}}}}`: "a guard inside a guard",
		`{"plugins":[{"type":"ipam-guard","delegate":{"type":"ipam-guard"}}]}`:                    "plugins[0] has a guard inside a guard",
		`{"ipam":{"type":"ipam-guard"}}`:                                                          "has no delegate object",
		`{"plugins":{}}`:                                                                          "plugins is not an array",
		`{"plugins":[1]}`:                                                                         "plugins[0] is not an object",
		`{"plugins":[],"type":"b"}`:                                                               "both plugins and type",
		`[]`:                                                                                      "not one JSON object",
	} {
		if _, err := conflist.Read([]byte(doc)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", doc, err, want)
		}
	}
	both := `{"plugins":[{"type":"ipam-guard","delegate":{"type":"b","ipam":{"type":"ipam-guard","delegate":{"type":"a"}}}}]}`
	if p := read(t, []byte(both)).Plugins[0]; !p.Guarded() || !p.IPAM.Guarded() || p.Type != "b" || p.IPAM.Type != "a" {
		t.Errorf("%+v", p)
	}
}

// A file that is being written is told from one that is wrong.
func TestReadOfHalf(t *testing.T) {
	for _, doc := range []string{"", " ", `{`, `{"plugins":[{"type":"br`, `{"a":1`} {
		if _, err := conflist.Read([]byte(doc)); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%q: %v", doc, err)
		}
	}
	if _, err := conflist.Read([]byte(`{"a" 1}`)); err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("wrong: %v", err)
	}
}

// FuzzWrap: whatever can be read comes back, byte for byte.
func FuzzWrap(f *testing.F) {
	for _, doc := range corpus(f) {
		f.Add(doc, `{}`)
	}
	f.Add([]byte(`{"type":"ipam-guard","delegate":{"type":"b","ipam":{"type":"a"}}}`), `{"a":"\u0041"}`)
	f.Add([]byte(`{"plugins":[{"type":"b","delegate":{},"guard":1,"ipam":{"type":"a","delegate":[],"guard":2}}]}`), ``)
	f.Fuzz(func(t *testing.T, doc []byte, settings string) {
		var s []byte
		if o, err := conflist.Parse([]byte(settings)); err == nil {
			s = o.Text(o.Span)
		}
		c, err := conflist.Read(doc)
		if err != nil || c.Guarded() { // one that is guarded already may be written in any way
			return
		}
		roundTrip(t, doc, s)
	})
}
