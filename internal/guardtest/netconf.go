package guardtest

import "maps"

// Object is a JSON object.
type Object = map[string]any

// Script is the delegate's: verb or "*" -> string or []string, see
// internal/fakeipam.
type Script map[string]any

// Where the guard sits in a netconf.
const (
	IPAM   = ""       // in ipam
	Plugin = "plugin" // in place of the plugin
	Bare   = "bare"   // nowhere: the delegate is called directly or by a shadow
)

// Conf is a netconf in parts. Each part is laid over what the node gives: an
// object over an object, anything else in its place; nil removes the key.
type Conf struct {
	Position string // IPAM unless set
	Version  string // 1.0.0 unless set
	Name     string // testnet unless set
	Script   Script // of the delegate
	Delegate Object // over {"type": "fake", "dir": FakeDir}
	Guard    Object // over the node's lockDir, stateDir and log.file
	IPAM     Object // beside delegate and guard
	Top      Object // the outermost: prevResult, runtimeConfig, ...
}

// Netconf is what the runtime, or the main plugin, gives on stdin.
func (n *Node) Netconf(c Conf) []byte {
	delegate := Object{"type": "fake", "dir": n.FakeDir}
	if c.Script != nil {
		delegate["script"] = c.Script
	}
	delegate = merge(delegate, c.Delegate)
	guard := merge(n.folders(), c.Guard)
	top := Object{"cniVersion": or(c.Version, "1.0.0"), "name": or(c.Name, "testnet"), "type": "bridge"}
	switch c.Position {
	case Plugin:
		top["type"], top["delegate"], top["guard"] = "ipam-guard", delegate, guard
	case Bare:
		top["ipam"] = merge(delegate, c.IPAM)
	default:
		top["ipam"] = merge(Object{"type": "ipam-guard", "delegate": delegate, "guard": guard}, c.IPAM)
	}
	return encode(merge(top, c.Top))
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// merge lays one object over another; neither is changed.
func merge(under, over Object) Object {
	out := maps.Clone(under)
	for k, v := range over {
		below, isObject := out[k].(Object)
		above, also := v.(Object)
		switch {
		case v == nil:
			delete(out, k)
		case isObject && also:
			out[k] = merge(below, above)
		default:
			out[k] = v
		}
	}
	return out
}
