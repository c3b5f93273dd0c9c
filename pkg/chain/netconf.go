package chain

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ipam-guard/ipam-guard/pkg/conflist"
)

// netconf is a network configuration as it came on stdin, and what the guard
// reads of it.
type netconf struct {
	top      conflist.Object
	position position
	outer    conflist.Object // the object that names the guard: ipam, or top; in a shadow none does
	delegate conflist.Object // the delegate's own
	version  string          // cniVersion, withoutCNIVersion where there is none
	name     string          // the network's
	ownType  string          // the name under which this netconf calls the guard
	typ      string          // the delegate's type
	settings Settings
	problems []Problem
}

// readNetconf decodes stdin. The error is fatal: nothing can be run by such a
// configuration. What is merely wrong is in problems, for the caller to refuse
// or to go on with.
func readNetconf(stdin []byte, nodeFile string, as role) (*netconf, *Error) {
	c := &netconf{version: withoutCNIVersion, settings: builtin(), position: ipamPosition}
	top, err := conflist.Parse(stdin)
	if err != nil {
		c.settings, c.problems = settingsFor("", nodeFile, nil)
		return c, newError(codeDecoding, fmt.Sprintf("the network configuration on stdin is not one JSON object: %v", err), "")
	}
	c.top = top
	c.version = orDefault(c.text(top, "cniVersion", ""), withoutCNIVersion)
	c.name = c.text(top, "name", "")
	fatal := c.findDelegate(as)
	settings, problems := settingsFor(c.typ, nodeFile, c.guard())
	c.settings, c.problems = settings, append(c.problems, problems...)
	if fatal != nil {
		return c, fatal
	}
	c.checkNames()
	c.checkFolders()
	return c, nil
}

// guard is the netconf's own object of settings, nil without one.
func (c *netconf) guard() []byte { return c.outer.Value("guard") }

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

// checkNames finds what is wrong with the names on the levels that we walk. A
// shadow changes nothing, so it leaves them to the delegate.
func (c *netconf) checkNames() {
	if c.position == shadowPosition {
		return
	}
	levels := []struct {
		name string
		o    conflist.Object
	}{{"", c.top}, {"ipam", c.outer}, {c.key("delegate"), c.delegate}}
	for _, l := range levels {
		if twice := l.o.Duplicate(); twice != "" && (l.name != "ipam" || c.position == ipamPosition) {
			c.problem(join(l.name, twice), "", "occurs twice (in any letter case), keep one")
		}
	}
	if c.typ == c.ownType {
		c.problem(c.key("delegate.type"), fmt.Sprintf("%q", c.typ), "the plugin that the guard stands in front of, not the guard itself")
	}
	if !legalName(c.name) {
		c.problem("name", fmt.Sprintf("%q", c.name), "a network name of letters, digits, '_', '.' and '-'")
	}
}

// checkFolders keeps our folders out of host-local's: its GC removes every
// regular file that isn't a reservation from <dataDir>/<network>.
func (c *netconf) checkFolders() {
	store := c.hostLocalStore()
	if store == "" {
		return
	}
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

// hostLocalStore is the folder of host-local's reservations, if it is the
// delegate, or the delegate's IPAM plugin; "" if it is neither.
func (c *netconf) hostLocalStore() string {
	o := c.delegate
	if c.position == pluginPosition {
		o, _ = c.delegate.Object("ipam")
	}
	if typ, _ := conflist.String(o.Value("type")); typ != "host-local" {
		return ""
	}
	dataDir, _ := conflist.String(o.Value("dataDir"))
	return resolve(filepath.Join(orDefault(dataDir, "/var/lib/cni/networks"), c.name))
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
