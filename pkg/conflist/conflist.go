// Package conflist edits CNI configuration without disturbing it.
//
// A netconf passes through many hands, and each has keys of its own: what is
// not ours must leave as it came, byte for byte. Unknown keys, their order,
// white space, escapes and numbers that no float64 holds (9007199254740993)
// all stay. So nothing here decodes a document and encodes it again: Parse
// finds where the members of an object stand, Splice replaces spans of bytes.
//
// What the members mean is left to the caller.
package conflist

import (
	"fmt"
	"strings"
	"unicode"
)

// Span is a half-open range of byte offsets in a document.
type Span struct{ Start, End int }

// Member is one `"name": value` of an object.
type Member struct {
	Name  string // decoded
	Key   Span   // the name with its quotes
	Value Span   // the value without the white space around it
}

// Object is a JSON object and the document that it stands in.
type Object struct {
	Doc     []byte
	Span    Span // from { to }
	Members []Member
}

// Parse reads a document that is one JSON object, white space around it aside.
func Parse(doc []byte) (Object, error) {
	return parse(doc, Span{0, len(doc)})
}

// parse reads the object that at holds; the spans it returns are offsets in doc.
func parse(doc []byte, at Span) (Object, error) {
	s := &scanner{text: doc[:at.End], at: at.Start}
	s.space()
	if s.peek() != '{' {
		return Object{}, s.bad("an object")
	}
	obj := Object{Doc: doc, Span: Span{Start: s.at}, Members: make([]Member, 0, 12)}
	err := s.list('}', func() error {
		key, err := s.name()
		if err != nil {
			return err
		}
		name, _ := String(s.text[key.Start:key.End])
		value, err := s.value(2)
		obj.Members = append(obj.Members, Member{name, key, value})
		return err
	})
	if err != nil {
		return Object{}, err
	}
	obj.Span.End = s.at
	if s.space(); s.at < len(s.text) {
		return Object{}, fmt.Errorf("more text after the end of the object, at byte %d", obj.Span.End)
	}
	return obj, nil
}

// Elements returns the spans of the elements of an array; ok is false for any
// other value.
func Elements(doc []byte, array Span) (elements []Span, ok bool) {
	s := &scanner{text: doc[:array.End], at: array.Start}
	if s.peek() != '[' {
		return nil, false
	}
	err := s.list(']', func() error {
		e, err := s.value(2)
		elements = append(elements, e)
		return err
	})
	return elements, err == nil
}

// Text returns the bytes of a span of the document.
func (o Object) Text(s Span) []byte { return o.Doc[s.Start:s.End] }

// Find returns the member of that name in any letter case, as Go's decoders
// match names; of several the last, as they do.
func (o Object) Find(name string) (Member, bool) {
	if i := o.index(name); i >= 0 {
		return o.Members[i], true
	}
	return Member{}, false
}

// Value returns the bytes of a member's value, nil if there is none.
func (o Object) Value(name string) []byte {
	m, ok := o.Find(name)
	if !ok {
		return nil
	}
	return o.Text(m.Value)
}

// Object reads the member of that name as an object of the same document.
// Without such a member it returns the zero Object.
func (o Object) Object(name string) (Object, error) {
	m, ok := o.Find(name)
	if !ok {
		return Object{}, nil
	}
	return o.Nested(m)
}

// Nested reads a member's value as an object of the same document.
func (o Object) Nested(m Member) (Object, error) { return o.At(m.Value) }

// At reads what stands at a span of the document as an object.
func (o Object) At(s Span) (Object, error) { return parse(o.Doc, s) }

// Duplicate returns a name that occurs twice in any letter case: what such an
// object means depends on who reads it. "" if there is none.
func (o Object) Duplicate() string {
	if len(o.Members) <= few {
		return o.duplicateOfFew()
	}
	seen := make(map[string]bool, len(o.Members))
	for _, m := range o.Members {
		key := strings.Map(fold, m.Name)
		if seen[key] {
			return named(m.Name)
		}
		seen[key] = true
	}
	return ""
}

// few members are compared one by one: that takes no memory.
const few = 64

func (o Object) duplicateOfFew() string {
	for i, m := range o.Members {
		for _, before := range o.Members[:i] {
			if strings.EqualFold(m.Name, before.Name) {
				return named(m.Name)
			}
		}
	}
	return ""
}

// named tells the empty name from no name.
func named(name string) string {
	if name == "" {
		return `""`
	}
	return name
}

// fold gives one rune for all that strings.EqualFold takes for the same.
func fold(r rune) rune {
	least := r
	for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
		least = min(least, next)
	}
	return least
}

// Edit replaces a span of a document by a text.
type Edit struct {
	Span
	Text []byte
}

// Splice returns a copy of text, which starts at offset base of a document,
// with the edits done. They must be in order and must not overlap.
func Splice(text []byte, base int, edits ...Edit) []byte {
	out := make([]byte, 0, len(text)+256)
	at := 0
	for _, e := range edits {
		out = append(out, text[at:e.Start-base]...)
		out = append(out, e.Text...)
		at = e.End - base
	}
	return append(out, text[at:]...)
}

// Overlay lays members of over on top of the object: a member whose name the
// object has replaces its value in place, others are appended before the
// closing brace, in their own spelling. It returns the new object's text.
func (o Object) Overlay(over Object, members []Member) []byte {
	var edits []Edit
	for _, m := range o.Members {
		if i := last(members, m.Name); i >= 0 && o.Members[o.index(m.Name)] == m {
			edits = append(edits, Edit{m.Value, over.Text(members[i].Value)})
		}
	}
	var added []byte
	for _, m := range members {
		if o.index(m.Name) >= 0 {
			continue
		}
		if len(o.Members)+len(added) > 0 {
			added = append(added, ',')
		}
		added = append(added, over.Doc[m.Key.Start:m.Value.End]...)
	}
	brace := o.Span.End - 1
	edits = append(edits, Edit{Span{brace, brace}, added})
	return Splice(o.Text(o.Span), o.Span.Start, edits...)
}

// index is the place of the last member of that name, -1 without one.
func (o Object) index(name string) int { return last(o.Members, name) }

func last(members []Member, name string) int {
	for i := len(members) - 1; i >= 0; i-- {
		if strings.EqualFold(members[i].Name, name) {
			return i
		}
	}
	return -1
}
