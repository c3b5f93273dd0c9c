package main

import (
	"fmt"
	"strings"

	"github.com/ipam-guard/ipam-guard/pkg/conflist"
	"github.com/ipam-guard/ipam-guard/pkg/delegate"
)

// Where the guard sits.
const (
	positionIPAM   = "ipam"
	positionPlugin = "plugin"
	positionShadow = "shadow"
)

// choice is what becomes of one plugin of a configuration.
type choice struct {
	File     string `json:"file"`
	Plugin   string `json:"plugin"`             // plugins[0] bridge
	Delegate string `json:"delegate,omitempty"` // the type of its ipam object
	Action   string `json:"action"`             // see below
	Position string `json:"position,omitempty"`
	Why      string `json:"why"`
}

// The actions.
const (
	actWrap  = "wrap"
	actKeep  = "guarded"   // it is guarded
	actLeave = "leave"     // it needs no guard
	actOther = "elsewhere" // it can be guarded, but not by an edit here
)

const guardedAlready = "guarded already"

// choose says for each plugin what is to be done. position is what the
// administrator wants, "" for what fits.
func choose(s source, position string) []choice {
	var choices []choice
	taken := map[string]string{} // delegate type -> the plugin whose records have it
	for i, p := range s.conf.Plugins {
		c := choice{File: s.name(), Plugin: pluginName(s.conf, i), Delegate: p.IPAM.Type}
		c.decide(p, s.nad, position)
		kind := recordType(c, p)
		if position == positionPlugin && c.Action == actWrap && (having(choices, actWrap) || having(choices, actKeep)) {
			c.Action, c.Position, c.Why = actLeave, "", "a plugin before it is guarded: it has the addresses"
		}
		if other, ok := taken[kind]; ok && (c.Action == actWrap || c.Action == actKeep) {
			c.clash(kind, other)
		} else if c.Action == actWrap || c.Action == actKeep {
			taken[kind] = c.Plugin
		}
		choices = append(choices, c)
	}
	if position == positionPlugin && !having(choices, actWrap) && !having(choices, actKeep) && len(choices) > 0 {
		choices[0].Action, choices[0].Position, choices[0].Why = actWrap, positionPlugin, "asked for"
	}
	return choices
}

// recordType is the delegate that the attachment's record is filed under.
func recordType(c choice, p conflist.Plugin) string {
	if c.Position == positionPlugin {
		return p.Type
	}
	return p.IPAM.Type
}

// clash: records go by network, container, interface and delegate, so that two
// guards of one list with the same delegate would have one record between them.
func (c *choice) clash(kind, other string) {
	if c.Action == actKeep {
		c.Why = fmt.Sprintf("WRONG: %s has a guard in front of %s too, and both would use one record: unwrap one", other, kind)
		return
	}
	c.Action, c.Position = actLeave, ""
	c.Why = fmt.Sprintf("%s is guarded with the same delegate %s: both would use one record", other, kind)
}

func (c *choice) decide(p conflist.Plugin, nad bool, position string) {
	hazard, known := delegate.HazardOf(p.Type, p.IPAM.Type, nad)
	hasIPAM := p.IPAM.Object.Doc != nil
	set := func(action, position, why string) { c.Action, c.Position, c.Why = action, position, why }
	switch {
	case p.Guarded() && p.IPAM.Guarded():
		set(actKeep, positionPlugin, "guarded as a plugin, and its ipam object too: the inner guard does nothing of its own")
	case p.Guarded():
		set(actKeep, positionPlugin, guardedAlready)
	case p.IPAM.Guarded() && known && hazard.Position != "":
		set(actKeep, positionIPAM, "WRONG: "+hazard.Why+": unwrap it, and use position "+hazard.Position)
	case p.IPAM.Guarded():
		set(actKeep, positionIPAM, guardedAlready)
	case !bareName(p.Type) || hasIPAM && !bareName(p.IPAM.Type):
		set(actLeave, "", "its type is not the bare name of a plugin")
	case !hasIPAM && !known:
		set(actLeave, "", "it has no ipam object")
	case known && hazard.Position == "":
		set(actLeave, "", hazard.Why)
	case position == positionIPAM && !hasIPAM:
		set(actLeave, "", "it has no ipam object to stand in for")
	case position == positionShadow:
		set(actOther, positionShadow, shadowed(p))
	case position == positionIPAM && known:
		set(actWrap, positionIPAM, "asked for, although "+hazard.Why)
	case position != "":
		set(actWrap, position, "asked for")
	case known && hazard.Ask:
		set(actLeave, "", hazard.Why+": say --position plugin")
	case known && hazard.Position == positionShadow:
		set(actOther, positionShadow, hazard.Why+"; "+shadowed(p))
	case known:
		set(actWrap, hazard.Position, hazard.Why)
	default:
		set(actWrap, positionIPAM, p.Type+" calls its IPAM plugin by ipam.type")
	}
}

// shadowPath is the usual CNI_PATH of a node with a shadow.
const shadowPath = "/opt/ipam-guard/shadow:/opt/cni/bin"

// shadowed says how the position that no edit of a configuration makes is had.
func shadowed(p conflist.Plugin) string {
	name := p.IPAM.Type
	if name == "" {
		name = p.Type
	}
	return "the configuration stays as it is: ipam-guardctl install --shadow " + name + " --cni-path " + shadowPath
}

func bareName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.Contains(name, "/")
}

func pluginName(c conflist.Conf, i int) string {
	if !c.List {
		return c.Plugins[i].Type
	}
	return fmt.Sprintf("plugins[%d] %s", i, c.Plugins[i].Type)
}

func having(choices []choice, action string) bool {
	for _, c := range choices {
		if c.Action == action {
			return true
		}
	}
	return false
}

// wrapped returns the text with the choices carried out.
func wrapped(s source, choices []choice, settings []byte) []byte {
	var edits []conflist.Edit
	for i, c := range choices {
		switch {
		case c.Action != actWrap:
		case c.Position == positionPlugin:
			edits = append(edits, s.conf.Plugins[i].WrapPlugin(settings)...)
		default:
			edits = append(edits, s.conf.Plugins[i].WrapIPAM(settings)...)
		}
	}
	return s.conf.Apply(edits...)
}
