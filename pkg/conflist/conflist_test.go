package conflist_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/ipam-guard/ipam-guard/pkg/conflist"
)

func parse(t testing.TB, text string) conflist.Object {
	t.Helper()
	o, err := conflist.Parse([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return o
}

func TestParseFindsSpans(t *testing.T) {
	text := " {\t\"a\" : 9007199254740993 ,\r\n\"b\\u0041\":{\"c\":[1.0, 1e3 , \"<>&\\/\"]},\"d\":null , \"e\":true}\n"
	o := parse(t, text)
	want := []struct{ name, key, value string }{
		{"a", `"a"`, "9007199254740993"},
		{"bA", `"b\u0041"`, `{"c":[1.0, 1e3 , "<>&\/"]}`},
		{"d", `"d"`, "null"},
		{"e", `"e"`, "true"},
	}
	if len(o.Members) != len(want) {
		t.Fatalf("members: %+v", o.Members)
	}
	for i, w := range want {
		m := o.Members[i]
		if m.Name != w.name || string(o.Text(m.Key)) != w.key || string(o.Text(m.Value)) != w.value {
			t.Errorf("member %d: name %q, key %q, value %q", i, m.Name, o.Text(m.Key), o.Text(m.Value))
		}
	}
	if got := string(o.Text(o.Span)); got != strings.TrimSpace(text) {
		t.Errorf("span: %q", got)
	}
	c, err := o.Object("BA")
	if err != nil || string(c.Value("c")) != `[1.0, 1e3 , "<>&\/"]` {
		t.Errorf("nested: %q, %v", c.Value("c"), err)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{
		"", " ", "[]", "1", "null", `"x"`, "{", `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{"a":1}}`,
		`{"a":1} {"a":2}`, `{"a":1}x`, `{"a":01}`, `{a:1}`, `{"a":1 "b":2}`, `{"a":tru}`, "\ufeff{}", `{"a":{]}`,
	} {
		if o, err := conflist.Parse([]byte(text)); err == nil {
			t.Errorf("%q was read as %+v", text, o)
		}
	}
}

func TestDuplicate(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":1,"b":2}`:        "",
		`{"a":1,"b":2,"a":3}`:  "a",
		`{"ipam":1,"IPAM":2}`:  "IPAM",
		`{"k":1,"\u212a":2}`:   "\u212a", // the Kelvin sign, which Go's decoders take for a k
		`{"\u0061":1,"b":0}`:   "",
		`{"\u0061":1,"a":{}}`:  "a",
		`{"x":{"a":1},"a":{}}`: "",
		`{"":1,"":2}`:          `""`,
	} {
		if got := parse(t, text).Duplicate(); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func TestOverlay(t *testing.T) {
	tests := []struct{ name, object, over, want string }{
		{"nothing", `{ "type" : "x" }`, `{}`, `{ "type" : "x" }`},
		{"in place", `{"a": 1 , "b":2}`, `{"a":[1.0]}`, `{"a": [1.0] , "b":2}`},
		{"appended", `{"a":1 }`, `{"b" : 2, "c":3}`, `{"a":1 ,"b" : 2,"c":3}`},
		{"to an empty one", `{ }`, `{"b":2}`, `{ "b":2}`},
		{"letter case", `{"Ranges":1}`, `{"ranges":2}`, `{"Ranges":2}`},
		{"out of order", `{"a":1,"b":2}`, `{"b":20,"a":10}`, `{"a":10,"b":20}`},
	}
	for _, tt := range tests {
		over := parse(t, tt.over)
		doc := `{"x":` + tt.object + `}`
		o, err := parse(t, doc).Object("x")
		if err != nil {
			t.Fatal(err)
		}
		if got := string(o.Overlay(over, over.Members)); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// FuzzParse: what encoding/json takes for one object is read, and nothing else;
// the spans give the very bytes of names and values.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{"a":1}`, ` { "a" : { "b" : [ ] } , "c":"\ud83d\ude00" } `, `{"a":1,"a":2}`, `{"n":9007199254740993,"f":1.0e+3}`,
		"{\"a\":\xff}", `{}{}`, `{"":""}`, "{\"\xff\":1}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		o, err := conflist.Parse(doc)
		var m map[string]json.RawMessage
		valid := json.Unmarshal(doc, &m) == nil && m != nil
		if valid != (err == nil) {
			t.Fatalf("encoding/json: %v, Parse: %v", valid, err)
		}
		if err != nil {
			return
		}
		var pieces [][]byte
		for _, mem := range o.Members {
			var name string
			if err := json.Unmarshal(o.Text(mem.Key), &name); err != nil || name != mem.Name {
				t.Fatalf("key %q decodes to %q (%v), not %q", o.Text(mem.Key), name, err, mem.Name)
			}
			if v := o.Text(mem.Value); !json.Valid(v) || !bytes.Equal(bytes.TrimSpace(v), v) {
				t.Fatalf("value %q of %q", v, name)
			}
			pieces = append(pieces, append(append(append([]byte{}, o.Text(mem.Key)...), ':'), o.Text(mem.Value)...))
		}
		again := append(append([]byte{'{'}, bytes.Join(pieces, []byte{','})...), '}')
		var a, b bytes.Buffer
		if json.Compact(&a, again) != nil || json.Compact(&b, doc) != nil || !bytes.Equal(a.Bytes(), b.Bytes()) {
			t.Fatalf("the members are not the whole of %q: %q", doc, again)
		}
	})
}

// FuzzOverlay: an overlay is the object with those members set, and every byte
// before the first change stays.
func FuzzOverlay(f *testing.F) {
	f.Add(`{"a": 1, "b":{"c":1.0}}`, `{"b":2,"z":[]}`)
	f.Add(`{}`, `{"a":1}`)
	f.Add(` { "A":1 } `, `{"a":9007199254740993}`)
	f.Fuzz(func(t *testing.T, object, over string) {
		o, err := conflist.Parse([]byte(object))
		v, err2 := conflist.Parse([]byte(over))
		if err != nil || err2 != nil || o.Duplicate() != "" || v.Duplicate() != "" {
			return
		}
		out, err := conflist.Parse(o.Overlay(v, v.Members))
		if err != nil {
			t.Fatalf("%q over %q: %v", over, object, err)
		}
		for _, m := range v.Members {
			if !bytes.Equal(out.Value(m.Name), v.Text(m.Value)) {
				t.Fatalf("%q is %q, want %q", m.Name, out.Value(m.Name), v.Text(m.Value))
			}
		}
		for i, m := range o.Members {
			if out.Members[i].Name != m.Name {
				t.Fatalf("member %d is %q, was %q", i, out.Members[i].Name, m.Name)
			}
			if _, changed := v.Find(m.Name); !changed && !bytes.Equal(out.Text(out.Members[i].Value), o.Text(m.Value)) {
				t.Fatalf("%q changed: %q", m.Name, out.Text(out.Members[i].Value))
			}
		}
	})
}
