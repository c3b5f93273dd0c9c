package conflist

import (
	"bytes"
	"strings"
)

// Wrapping puts a text before and one behind an object and changes no byte of
// it, so what it held before can always be told: that is what Unwrap takes out.

// WrapIPAM returns the edits that put a guard in the place of a plugin's ipam
// object. settings are the guard's own, nil for none.
func (p Plugin) WrapIPAM(settings []byte) []Edit {
	return around(p.IPAM.Object, nil, settings)
}

// WrapPlugin returns the edits that put a guard in the place of the plugin. What
// a runtime looks for on the outside is repeated there: libcni gives
// runtimeConfig only for capabilities that it sees (multus #544), and of a
// configuration that is one plugin also name and version.
func (p Plugin) WrapPlugin(settings []byte) []Edit {
	return around(p.Part.Object, p.repeated(), settings)
}

func around(o Object, repeated []Member, settings []byte) []Edit {
	at := func(offset int, text []byte) Edit { return Edit{Span{offset, offset}, text} }
	return []Edit{at(o.Span.Start, before(o, repeated)), at(o.Span.End, behind(settings))}
}

func (p Plugin) repeated() []Member {
	names := []string{"capabilities"}
	if p.whole {
		names = []string{"cniVersion", "name", "capabilities"}
	}
	var members []Member
	for _, name := range names {
		if m, ok := p.Part.Object.Find(name); ok {
			members = append(members, m)
		}
	}
	return members
}

// before is what stands between the guard's brace and its delegate's.
func before(o Object, repeated []Member) []byte {
	text := []byte(`{"type": "` + Guard + `", `)
	for _, m := range repeated {
		text = append(text, o.Text(m.Key)...)
		text = append(text, ": "...)
		text = append(text, o.Text(m.Value)...)
		text = append(text, ", "...)
	}
	return append(text, `"delegate": `...)
}

func behind(settings []byte) []byte {
	if settings == nil {
		return []byte("}")
	}
	return append(append([]byte(`, "guard": `), settings...), '}')
}

// UnwrapIPAM returns the edit that gives a plugin its ipam object back. exact:
// the guard's object is as WrapIPAM leaves it, so what comes out is what went
// in. Else somebody wrote into it: what it has beside type, delegate and guard
// is kept, as the delegate was given it.
func (p Plugin) UnwrapIPAM() (edit Edit, exact bool) { return p.IPAM.unwrap(nil) }

// UnwrapPlugin is UnwrapIPAM for a guard in position plugin.
func (p Plugin) UnwrapPlugin() (edit Edit, exact bool) { return p.Part.unwrap(p.repeated()) }

func (p Part) unwrap(repeated []Member) (Edit, bool) {
	g, inner := p.Guard, p.Object
	var settings []byte
	if m, ok := g.Find("guard"); ok {
		settings = g.Text(m.Value)
	}
	head := g.Doc[g.Span.Start:inner.Span.Start]
	tail := g.Doc[inner.Span.End:g.Span.End]
	if bytes.Equal(head, before(inner, repeated)) && bytes.Equal(tail, behind(settings)) {
		return Edit{g.Span, inner.Text(inner.Span)}, true
	}
	return Edit{g.Span, inner.Overlay(g, p.foreign())}, false
}

// foreign are the outer members that the delegate does not have just so.
func (p Part) foreign() []Member {
	var members []Member
	for _, m := range p.Guard.Members {
		switch strings.ToLower(m.Name) {
		case "type", "delegate", "guard":
			continue
		}
		if same, ok := p.Object.Find(m.Name); ok && bytes.Equal(p.Object.Text(same.Value), p.Guard.Text(m.Value)) {
			continue
		}
		members = append(members, m)
	}
	return members
}

// Apply returns the document with the edits done, which must be in order and
// must not overlap.
func (o Object) Apply(edits ...Edit) []byte { return Splice(o.Doc, 0, edits...) }

// Unwrap returns the document without any guard; exact is as in UnwrapIPAM, for
// all of them.
func (c Conf) Unwrap() (doc []byte, exact bool, err error) {
	exact = true
	// First the inner ones: the edits of one that holds another would overlap.
	doc = c.Apply(c.unwrap(func(p Plugin) Part { return p.IPAM }, Plugin.UnwrapIPAM, &exact)...)
	if c, err = Read(doc); err != nil {
		return nil, false, err
	}
	doc = c.Apply(c.unwrap(func(p Plugin) Part { return p.Part }, Plugin.UnwrapPlugin, &exact)...)
	return doc, exact, nil
}

func (c Conf) unwrap(part func(Plugin) Part, unwrap func(Plugin) (Edit, bool), exact *bool) []Edit {
	var edits []Edit
	for _, p := range c.Plugins {
		if part(p).Guarded() {
			edit, was := unwrap(p)
			*exact = *exact && was
			edits = append(edits, edit)
		}
	}
	return edits
}
