package chain

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ipam-guard/ipam-guard/pkg/conflist"
)

// netconf is a network configuration as it came on stdin, and what the guard
// reads of it.
type netconf struct {
	top      conflist.Object
	ipam     conflist.Object
	delegate conflist.Object
	version  string // cniVersion, withoutCNIVersion where there is none
	name     string // the network's
	ownType  string // the name under which this netconf calls the guard
	typ      string // the delegate's type
	settings Settings
	problems []Problem
}

// readNetconf decodes stdin. The error is fatal: nothing can be run by such a
// configuration. What is merely wrong is in problems, for the caller to refuse
// or to go on with.
func readNetconf(stdin []byte, nodeFile string) (*netconf, *Error) {
	c := &netconf{version: withoutCNIVersion, settings: builtin()}
	top, err := conflist.Parse(stdin)
	if err != nil {
		c.settings, c.problems = settingsFor("", nodeFile, nil)
		return c, newError(codeDecoding, fmt.Sprintf("the network configuration on stdin is not one JSON object: %v", err), "")
	}
	c.top = top
	c.version = orDefault(c.text(top, "cniVersion", ""), withoutCNIVersion)
	c.name = c.text(top, "name", "")
	fatal := c.findDelegate()
	settings, problems := settingsFor(c.typ, nodeFile, c.ipam.Value("guard"))
	c.settings, c.problems = settings, append(c.problems, problems...)
	if fatal != nil {
		return c, fatal
	}
	c.checkNames()
	c.checkFolders()
	return c, nil
}

// findDelegate finds the delegate's object in `ipam`.
func (c *netconf) findDelegate() *Error {
	bad := func(key, value, want string) *Error {
		p := Problem{Key: key, Value: value, Want: want, Origin: "netconf"}
		return newError(codeConfig, p.String(), "")
	}
	var err error
	if c.ipam, err = c.top.Object("ipam"); err != nil || c.ipam.Doc == nil {
		return bad("ipam", short(c.top.Value("ipam")), `want {"type": "ipam-guard", "delegate": {the original ipam object}}`)
	}
	c.ownType = c.text(c.ipam, "type", "ipam")
	m, ok := c.ipam.Find("delegate")
	if !ok {
		return bad("ipam.delegate", "", "missing, want the ipam object of the plugin that the guard stands in front of")
	}
	if c.delegate, err = c.ipam.Nested(m); err != nil {
		return bad("ipam.delegate", short(c.ipam.Text(m.Value)), "the original ipam object")
	}
	c.typ = c.text(c.delegate, "type", "ipam.delegate")
	if c.typ == "" || c.typ == "." || c.typ == ".." || strings.ContainsRune(c.typ, os.PathSeparator) {
		return bad("ipam.delegate.type", short(c.delegate.Value("type")), "the name of an IPAM plugin's binary, without a path")
	}
	return nil
}

// text reads a string member; another type is a problem and reads as "".
func (c *netconf) text(o conflist.Object, name, prefix string) string {
	m, ok := o.Find(name)
	if !ok {
		return ""
	}
	text, ok := conflist.String(o.Text(m.Value))
	if !ok {
		c.problem(join(prefix, name), short(o.Text(m.Value)), "a string")
	}
	return text
}

func (c *netconf) problem(key, value, want string) {
	c.problems = append(c.problems, Problem{key, value, want, "netconf"})
}

// checkNames finds what is wrong with the names on the levels that we walk.
func (c *netconf) checkNames() {
	levels := []struct {
		name string
		o    conflist.Object
	}{{"", c.top}, {"ipam", c.ipam}, {"ipam.delegate", c.delegate}}
	for _, l := range levels {
		if twice := l.o.Duplicate(); twice != "" {
			c.problem(join(l.name, twice), "", "occurs twice (in any letter case), keep one")
		}
	}
	if c.typ == c.ownType {
		c.problem("ipam.delegate.type", fmt.Sprintf("%q", c.typ), "the plugin that the guard stands in front of, not the guard itself")
	}
	if !legalName(c.name) {
		c.problem("name", fmt.Sprintf("%q", c.name), "a network name of letters, digits, '_', '.' and '-'")
	}
}

// checkFolders keeps our folders out of host-local's: its GC removes every
// regular file that isn't a reservation from <dataDir>/<network>.
func (c *netconf) checkFolders() {
	if c.typ != "host-local" {
		return
	}
	dataDir, _ := conflist.String(c.delegate.Value("dataDir"))
	store := resolve(filepath.Join(orDefault(dataDir, "/var/lib/cni/networks"), c.name))
	base := builtin()
	for _, f := range []struct {
		key     string
		dir     *string
		builtin string
	}{{"guard.stateDir", &c.settings.StateDir, base.StateDir}, {"guard.lockDir", &c.settings.LockDir, base.LockDir}} {
		if dir := resolve(*f.dir); dir == store || strings.HasPrefix(dir, store+"/") {
			c.problem(f.key, fmt.Sprintf("%q", *f.dir), "a folder outside host-local's store "+store+", whose garbage collection removes foreign files")
			*f.dir = f.builtin
		}
	}
}

// resolve follows the symbolic links of that part of a path which is there.
func resolve(path string) string {
	for dir, rest := path, ""; ; dir, rest = filepath.Dir(dir), filepath.Join(filepath.Base(dir), rest) {
		if resolved, err := filepath.EvalSymlinks(dir); err == nil {
			return filepath.Join(resolved, rest)
		}
		if dir == filepath.Dir(dir) {
			return path
		}
	}
}

// forDelegate builds what the delegate gets on stdin: the value of `ipam`
// becomes the delegate's object. Members of the outer `ipam` that are not ours
// replace the delegate's in place or are appended, since some main plugins write
// there (flannel its ranges, calico its pools). Every other byte stays.
func (c *netconf) forDelegate() []byte {
	var foreign []conflist.Member
	for i, m := range c.ipam.Members {
		last, _ := c.ipam.Find(m.Name)
		ours := strings.EqualFold(m.Name, "type") || strings.EqualFold(m.Name, "delegate") || strings.EqualFold(m.Name, "guard")
		if !ours && last == c.ipam.Members[i] {
			foreign = append(foreign, m)
		}
	}
	object := c.delegate.Overlay(c.ipam, foreign)
	return conflist.Splice(c.top.Doc, 0, conflist.Edit{Span: c.ipam.Span, Text: object})
}

// sinceVersion is the version that brought a verb.
func sinceVersion(verb string) string {
	switch verb {
	case "CHECK":
		return "0.4.0"
	case "GC", "STATUS":
		return latest
	}
	return ""
}

// checkVersion says, as the reference skeleton does, whether a verb may be
// called with this configuration's version.
func (c *netconf) checkVersion(verb string) *Error {
	if since := sinceVersion(verb); since != "" {
		ok, err := atLeast(c.version, since)
		if err != nil {
			return newError(codeDecoding, err.Error(), "")
		}
		if !ok {
			return newError(codeVersion, "config version does not allow "+verb, fmt.Sprintf("cniVersion is %q, %s came with %s", c.version, verb, since))
		}
	}
	if !slices.Contains(versions, c.version) {
		return newError(codeVersion, "incompatible CNI versions", fmt.Sprintf("config is %q, plugin supports %q", c.version, versions))
	}
	return nil
}

// attachments reads the list of valid attachments of a GC, under its present
// or its older name. ok is false where there is none: no list, null, or
// something that isn't one. An empty list is a list.
func (c *netconf) attachments() (list []attachment, ok bool) {
	for _, key := range []string{presentList, olderList} {
		if raw := c.top.Value(key); raw != nil {
			err := json.Unmarshal(raw, &list)
			nameless := func(a attachment) bool { return a.ContainerID == "" }
			return list, err == nil && list != nil && !slices.ContainsFunc(list, nameless)
		}
	}
	return nil, false
}

func orDefault(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
