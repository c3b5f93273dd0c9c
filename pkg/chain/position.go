package chain

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ipam-guard/ipam-guard/pkg/conflist"
	"github.com/ipam-guard/ipam-guard/pkg/delegate"
	"github.com/ipam-guard/ipam-guard/pkg/hostlock"
)

// position is where the guard sits.
type position string

const (
	ipamPosition   position = "ipam"   // in `ipam`; a main plugin calls it
	pluginPosition position = "plugin" // in `plugins`; the runtime calls it
	shadowPosition position = "shadow" // under the delegate's own name, in an earlier folder of CNI_PATH
)

// ownName is the guard's name on a node. Under another it may be a shadow.
const ownName = "ipam-guard"

// role is what the guard was called as.
type role struct {
	name   string
	behind func() bool // whether a plugin of that name that is no guard comes after it in CNI_PATH
}

func (op *operation) role() role {
	return role{op.calledAs(), func() bool {
		_, err := op.findBehind(op.calledAs(), op.path)
		return err == nil
	}}
}

func (op *operation) calledAs() string {
	if op.Name == "" {
		return ownName
	}
	return filepath.Base(op.Name)
}

// below says whether another guard is above this one: that one does the work.
func (op *operation) below() bool { return op.env(hostlock.MarkEnv) != "" }

// findBehind finds a plugin that is not this guard. Below another guard only
// what comes later in CNI_PATH counts, so that guards of any version that stand
// one behind the other never come back to the first.
func (op *operation) findBehind(name, path string) (string, error) {
	return delegate.FindBehind(name, path, op.Name, op.below())
}

// find finds the delegate that the netconf names.
func (op *operation) find() (string, error) {
	if op.conf.position == shadowPosition {
		return op.findBehind(op.conf.typ, op.path)
	}
	return delegate.Find(op.conf.typ, op.path)
}

// findDelegate finds out where in the netconf the guard sits, and the delegate's
// object.
func (c *netconf) findDelegate(as role) *Error {
	ipam, err := c.top.Object("ipam")
	if err != nil { // null, or what only the main plugin understands
		ipam = conflist.Object{}
	}
	plugin, inner := c.text(c.top, "type", ""), c.text(ipam, "type", "ipam")
	_, inTop := c.top.Find("delegate")
	_, inIPAM := ipam.Find("delegate")
	named := plugin == as.name || inner == as.name
	guarded := plugin == as.name && inTop || inner == as.name && inIPAM
	switch {
	case as.name != ownName && (named && !guarded || as.behind()):
		c.position, c.typ, c.delegate = shadowPosition, as.name, c.top
		if inner == as.name {
			c.delegate = ipam
		}
		return nil
	case inTop && (plugin == as.name || !inIPAM && inner != as.name):
		c.position, c.outer, c.ownType = pluginPosition, c.top, plugin
	default:
		c.position, c.outer, c.ownType = ipamPosition, ipam, inner
	}
	return c.readDelegate()
}

// key is the full name of a key beside `delegate`.
func (c *netconf) key(name string) string {
	if c.position == pluginPosition {
		return name
	}
	return join("ipam", name)
}

// readDelegate reads the delegate's object.
func (c *netconf) readDelegate() *Error {
	bad := func(key, value, want string) *Error {
		p := Problem{Key: key, Value: value, Want: want, Origin: "netconf"}
		return newError(codeConfig, p.String(), "")
	}
	if c.outer.Doc == nil {
		return bad("ipam", short(c.top.Value("ipam")), `want {"type": "ipam-guard", "delegate": {the original ipam object}}`)
	}
	m, ok := c.outer.Find("delegate")
	if !ok {
		return bad(c.key("delegate"), "", "missing, want the object of the plugin that the guard stands in front of")
	}
	var err error
	if c.delegate, err = c.outer.Nested(m); err != nil {
		return bad(c.key("delegate"), short(c.outer.Text(m.Value)), "the object of the plugin that the guard stands in front of")
	}
	c.typ = c.text(c.delegate, "type", c.key("delegate"))
	if c.typ == "" || c.typ == "." || c.typ == ".." || strings.ContainsRune(c.typ, os.PathSeparator) {
		return bad(c.key("delegate.type"), short(c.delegate.Value("type")), "the name of a plugin's binary, without a path")
	}
	return nil
}

// forDelegate builds what the delegate gets on stdin. Every byte stays but for
// what is ours.
func (c *netconf) forDelegate() []byte {
	switch c.position {
	case pluginPosition:
		return c.forPlugin()
	case shadowPosition:
		return c.top.Doc
	}
	return c.forIPAM()
}

// forIPAM puts the delegate's object in the place of the value of `ipam`.
// Members of the outer `ipam` that are not ours replace the delegate's in place
// or are appended, since some main plugins write there (flannel its ranges,
// calico its pools).
func (c *netconf) forIPAM() []byte {
	var foreign []conflist.Member
	for i, m := range c.outer.Members {
		last, _ := c.outer.Find(m.Name)
		if !ours(m) && last == c.outer.Members[i] {
			foreign = append(foreign, m)
		}
	}
	object := c.delegate.Overlay(c.outer, foreign)
	return conflist.Splice(c.top.Doc, 0, conflist.Edit{Span: c.outer.Span, Text: object})
}

// ours reports whether a member beside `delegate` is the guard's.
func ours(m conflist.Member) bool { return is(m, "type") || is(m, "delegate") || is(m, "guard") }

func is(m conflist.Member, name string) bool { return strings.EqualFold(m.Name, name) }

// forPlugin makes one plugin's netconf of the guard's and its delegate's: `type`
// gets the delegate's value, the delegate's other members take the place of
// `delegate`, `guard` goes. Where both have a member the outer one counts:
// there the runtime puts what it knows.
func (c *netconf) forPlugin() []byte {
	inner := c.delegate.Rewrite(func(m conflist.Member) ([]byte, bool) {
		_, outer := c.top.Find(m.Name)
		return nil, !is(m, "type") && (!outer || is(m, "delegate") || is(m, "guard"))
	})
	inner = bytes.TrimSpace(inner)
	outer := c.top.Rewrite(func(m conflist.Member) ([]byte, bool) {
		switch {
		case is(m, "type"):
			return slices.Concat(c.top.Text(conflist.Span{Start: m.Key.Start, End: m.Value.Start}), c.delegate.Value("type")), true
		case is(m, "delegate"):
			return inner, len(inner) > 0
		}
		return nil, !is(m, "guard")
	})
	if c.top.Value("type") == nil {
		outer = append(fmt.Appendf(nil, `"type":%s,`, c.delegate.Value("type")), outer...)
	}
	return conflist.Splice(c.top.Doc, 0, conflist.Edit{Span: conflist.Span{Start: c.top.Span.Start + 1, End: c.top.Span.End - 1}, Text: outer})
}
