package conflist

import (
	"bytes"
	"errors"
	"fmt"
)

// Guard is the type by which a configuration names the guard.
const Guard = "ipam-guard"

// Conf is a network configuration as an administrator has it in a file: one
// plugin, or a list of them, some perhaps behind a guard.
type Conf struct {
	Object
	Name    string // the network's; a NetworkAttachmentDefinition may leave it out
	Version string // cniVersion; "" without one
	List    bool   // it has plugins; else it is one plugin
	Plugins []Plugin
}

// Plugin is a plugin of a configuration. A guard in position plugin holds it
// as its delegate; one in position ipam holds its ipam object.
type Plugin struct {
	Part
	IPAM Part // the zero Part where there is no ipam object with a type

	whole bool // it is the document: what a runtime reads of that must stay outside
}

// Part is what a guard can stand in front of.
type Part struct {
	Object Object // as it is without a guard
	Guard  Object // the guard's object around it; the zero Object without one
	Type   string
}

// Guarded reports whether a guard holds the part.
func (p Part) Guarded() bool { return p.Guard.Doc != nil }

// Guarded reports whether the configuration names the guard.
func (c Conf) Guarded() bool {
	for _, p := range c.Plugins {
		if p.Guarded() || p.IPAM.Guarded() {
			return true
		}
	}
	return false
}

// ErrBOM is for a byte order mark, which some editors put before the text. No CNI
// library reads such a file.
var ErrBOM = errors.New("begins with a byte order mark, which no CNI runtime reads: save it as UTF-8 without one")

// Read reads a configuration. It refuses what could not be edited safely:
// what is no whole JSON object (io.ErrUnexpectedEOF where its end is missing: a
// file that is being written), a name that occurs twice on a level that a guard
// would change, a guard inside a guard.
func Read(doc []byte) (Conf, error) {
	if bytes.HasPrefix(doc, []byte("\xef\xbb\xbf")) {
		return Conf{}, ErrBOM
	}
	top, err := Parse(doc)
	if err != nil {
		return Conf{}, fmt.Errorf("not one JSON object: %w", err)
	}
	if err := noDuplicate(top, "the configuration"); err != nil {
		return Conf{}, err
	}
	c := Conf{Object: top, Name: text(top, "name"), Version: text(top, "cniVersion")}
	list, isList := top.Find("plugins")
	if _, hasType := top.Find("type"); isList && hasType {
		return c, errors.New("has both plugins and type: which one counts depends on who reads it, remove one")
	}
	c.List = isList
	if !isList {
		p, err := readPlugin(top, "the plugin")
		p.whole = true
		c.Plugins = []Plugin{p}
		return c, err
	}
	elements, ok := Elements(doc, list.Value)
	if !ok {
		return c, errors.New("plugins is not an array")
	}
	for i, at := range elements {
		name := fmt.Sprintf("plugins[%d]", i)
		o, err := top.At(at)
		if err != nil {
			return c, fmt.Errorf("%s is not an object", name)
		}
		p, err := readPlugin(o, name)
		if err != nil {
			return c, err
		}
		c.Plugins = append(c.Plugins, p)
	}
	return c, nil
}

func readPlugin(o Object, name string) (Plugin, error) {
	part, err := readPart(o, name)
	if err != nil {
		return Plugin{}, err
	}
	p := Plugin{Part: part}
	m, ok := part.Object.Find("ipam")
	if !ok || part.Object.Doc[m.Value.Start] != '{' {
		return p, nil
	}
	ipam, _ := part.Object.Nested(m) // valid: it was scanned as a part of the document
	if _, ok := ipam.Find("type"); ok {
		p.IPAM, err = readPart(ipam, name+": ipam")
	}
	return p, err
}

// readPart looks behind the guard.
func readPart(o Object, name string) (Part, error) {
	if err := noDuplicate(o, name); err != nil {
		return Part{}, err
	}
	p := Part{Object: o, Type: text(o, "type")}
	if p.Type != Guard {
		return p, nil
	}
	inner, err := o.Object("delegate")
	if err != nil || inner.Doc == nil {
		return p, fmt.Errorf("%s is of type %s, but has no delegate object", name, Guard)
	}
	if err := noDuplicate(inner, name+": delegate"); err != nil {
		return p, err
	}
	p = Part{Object: inner, Guard: o, Type: text(inner, "type")}
	if p.Type == Guard {
		return p, fmt.Errorf("%s has a guard inside a guard: remove one by hand", name)
	}
	return p, nil
}

func noDuplicate(o Object, name string) error {
	if twice := o.Duplicate(); twice != "" {
		return fmt.Errorf("%s has %q twice (in any letter case): which one counts depends on who reads it, remove one", name, twice)
	}
	return nil
}

func text(o Object, name string) string {
	value, _ := String(o.Value(name))
	return value
}
