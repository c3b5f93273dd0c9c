package chain

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ipam-guard/ipam-guard/pkg/conflist"
	"github.com/ipam-guard/ipam-guard/pkg/delegate"
	"github.com/ipam-guard/ipam-guard/pkg/policy"
)

// settingsFor merges the layers: built-in, built-in for the delegate, the node's
// file (its defaults, then its entry for the delegate), then guard objects: the
// netconf's, before it a record's. Later wins, key by key.
//
// A value that is wrong is left out, so that an earlier layer's stands, and
// reported: whether the problems refuse the call is for the caller to say. The
// settings returned can always be gone by.
func settingsFor(delegateType, nodeFile string, guards ...[]byte) (Settings, []Problem) {
	s := builtin()
	if known := delegate.Settings(delegateType); known != "" {
		s.apply([]byte(known), "", "built in for "+delegateType)
	}
	base := s
	problems := s.applyNodeFile(delegateType, nodeFile)
	for _, guard := range guards {
		problems = append(problems, s.apply(guard, "guard", "netconf")...)
	}
	return s, append(problems, s.check(base)...)
}

// applyNodeFile applies the administrator's file for the whole node:
// {"defaults": {...}, "delegates": {"host-local": {...}}}. No file is no problem.
func (s *Settings) applyNodeFile(delegateType, path string) []Problem {
	if unix.Access(path, unix.F_OK) == unix.ENOENT { // as on most nodes
		return nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	bad := func(key, want string) []Problem { return []Problem{{Key: key, Want: want, Origin: path}} }
	if err != nil {
		return bad("node's file", fmt.Sprintf("can't be read: %v", err))
	}
	top, err := conflist.Parse(text)
	if err != nil {
		return bad("node's file", fmt.Sprintf("want an object of defaults and delegates: %v", err))
	}
	problems := among(top, "", path, "defaults", "delegates")
	problems = append(problems, s.apply(top.Value("defaults"), "defaults", path)...)
	entries, err := top.Object("delegates")
	if err != nil {
		return append(problems, bad("delegates", fmt.Sprintf("want an object with an entry per delegate type: %v", err))...)
	}
	if twice := entries.Duplicate(); twice != "" {
		problems = append(problems, Problem{Key: "delegates." + twice, Want: "occurs twice, keep one", Origin: path})
	}
	return append(problems, s.apply(entries.Value(delegateType), "delegates."+delegateType, path)...)
}

// unknown reports the members of an object that nothing would read, and names
// that occur twice.
func unknown(o conflist.Object, name, origin string, isKnown func(string) bool, known func() []string) []Problem {
	var problems []Problem
	for _, m := range o.Members {
		if !isKnown(m.Name) {
			problems = append(problems, Problem{
				Key: join(name, m.Name), Origin: origin,
				Want: "unknown key, known here are " + strings.Join(known(), ", "),
			})
		}
	}
	if twice := o.Duplicate(); twice != "" {
		problems = append(problems, Problem{Key: join(name, twice), Want: "occurs twice, keep one", Origin: origin})
	}
	return problems
}

// among is unknown for a short list.
func among(o conflist.Object, name, origin string, known ...string) []Problem {
	return unknown(o, name, origin, func(n string) bool { return slices.Contains(known, n) }, func() []string { return known })
}

// apply lays one layer over the settings. name is the layer's own key, for
// messages.
func (s *Settings) apply(text []byte, name, origin string) []Problem {
	if text == nil {
		return nil
	}
	o, err := conflist.Parse(text)
	if err != nil {
		return []Problem{{name, short(text), fmt.Sprintf("an object of settings (%v)", err), origin}}
	}
	return s.walk(o, "", name, origin)
}

// walk applies the members of an object of settings; key is its full name below
// the layer, "" at the top.
func (s *Settings) walk(o conflist.Object, key, name, origin string) []Problem {
	isKnown := func(n string) bool { return isKey(key, n) }
	problems := unknown(o, join(name, key), origin, isKnown, func() []string { return below(key) })
	for _, m := range o.Members {
		if !isKnown(m.Name) {
			continue
		}
		full := join(key, m.Name)
		value := o.Text(m.Value)
		key, group := find(full), isGroup(full)
		if group && value[0] == '{' {
			nested, _ := o.Nested(m) // valid: it was scanned as a part of o
			problems = append(problems, s.walk(nested, full, name, origin)...)
			continue
		}
		switch {
		case key != nil:
			if err := key.read(s, value); err != nil {
				problems = append(problems, problemOf(err, join(name, full), value, origin))
			}
		case group:
			problems = append(problems, Problem{join(name, full), short(value), "an object of " + strings.Join(below(full), ", "), origin})
		}
	}
	return problems
}

func problemOf(err error, key string, value []byte, origin string) Problem {
	var rule *policy.RuleError
	if errors.As(err, &rule) {
		return Problem{key + rule.Key, rule.Value, rule.Want, origin}
	}
	return Problem{key, short(value), err.Error(), origin}
}

func join(name, key string) string {
	if name == "" || key == "" {
		return name + key
	}
	return name + "." + key
}

// short is a value as it was written, cut for a message.
func short(value []byte) string {
	const most = 120
	if len(value) > most {
		return string(value[:most]) + "..."
	}
	return string(value)
}
