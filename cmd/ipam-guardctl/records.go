package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/containernetworking/cni/libcni"
	"github.com/spf13/cobra"

	"github.com/ipam-guard/ipam-guard/pkg/chain"
	"github.com/ipam-guard/ipam-guard/pkg/conflist"
	"github.com/ipam-guard/ipam-guard/pkg/journal"
)

// recordOptions say where a node's records, locks and logs are.
type recordOptions struct {
	nodeFile  string
	confDir   string
	stateDirs []string
	root      string // where the node's file system is mounted; "": at /
}

func (o *recordOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.nodeFile, "node-file", nodeFile, "the settings of the node")
	f.StringVar(&o.confDir, "conf-dir", "/etc/cni/net.d", "the runtime's conf folder: its guards may have folders of their own")
	f.StringArrayVar(&o.stateDirs, "state-dir", nil, "another folder of records, beside those that the settings name")
}

// confs are the configurations of the conf folder that can be read.
func (o *recordOptions) confs() []conflist.Conf {
	paths, err := libcni.ConfFiles(o.confDir, extensions)
	if err != nil {
		return nil
	}
	var confs []conflist.Conf
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		if c, err := conflist.Read(text); err == nil {
			confs = append(confs, c)
		}
	}
	return confs
}

func (o *recordOptions) settings() []chain.Settings { return settingsIn(o.nodeFile, o.confs()...) }

// dirs are the folders of records.
func (o *recordOptions) dirs() []string {
	dirs := stateDirs(o.nodeFile, o.stateDirs, o.confs()...)
	for i := range dirs {
		dirs[i] = o.root + dirs[i]
	}
	return dirs
}

// admin acts on the records of one folder.
func (t *tool) admin(nodeFile, dir string) chain.Admin {
	return chain.Admin{
		Call: chain.Call{
			Env: t.env, Stderr: t.err, NodeFile: nodeFile,
			Random: rand.Float64, Version: version, Self: os.Executable,
		},
		StateDir: dir, Warn: func(text string) { t.warn("%s", text) },
	}
}

// held is a record and the folder that it is in.
type held struct {
	*chain.Held
	dir  string
	boot string // of the node, now
}

// records are all of the node, the oldest first; with names, those that they may
// mean: no others are read. The error says which can't be seen.
func (t *tool) records(o recordOptions, note bool, names ...string) ([]held, error) {
	containers := make([]string, len(names))
	for i, name := range names {
		containers[i], _, _ = strings.Cut(name, "/")
	}
	boot := journal.Here().Boot
	var all []held
	var errs []error
	for _, dir := range o.dirs() {
		a := t.admin(o.nodeFile, dir)
		a.Note = note
		list, err := a.See(containers...)
		if errors.Is(err, fs.ErrPermission) {
			err = fmt.Errorf("the records can't be seen: %w: run it as root", err)
		}
		errs = append(errs, err)
		for _, h := range list {
			all = append(all, held{h, dir, boot})
		}
	}
	slices.SortFunc(all, func(a, b held) int {
		return cmp.Or(strings.Compare(a.Created, b.Created), strings.Compare(a.Container, b.Container),
			strings.Compare(a.IfName, b.IfName), strings.Compare(a.Network, b.Network), strings.Compare(a.Delegate, b.Delegate))
	})
	return all, errors.Join(errs...)
}

// name is how a person names a record: as its file is called.
func (h held) name() string {
	return h.Container + "/" + h.IfName + "@" + h.Network + "@" + h.Delegate
}

// matches says whether a record may be meant by CONTAINER[/IFNAME[@NETWORK[@DELEGATE]]].
func (h held) matches(container string, rest []string) bool {
	is := strings.HasPrefix(h.Container, container) && h.Container != ""
	for i, value := range []string{h.IfName, h.Network, h.Delegate} {
		is = is && (i >= len(rest) || rest[i] == value)
	}
	return is
}

// find returns the one record that a name means: that of the container, or the
// only one whose container begins so.
func find(all []held, name string) (held, error) {
	container, after, more := strings.Cut(name, "/")
	var rest []string
	if more {
		rest = strings.SplitN(after, "@", 3)
	}
	var exact, begins []held
	for _, h := range all {
		if !h.matches(container, rest) {
			continue
		}
		if begins = append(begins, h); h.Container == container {
			exact = append(exact, h)
		}
	}
	if len(exact) > 0 {
		begins = exact
	}
	switch {
	case len(begins) == 0 || container == "":
		return held{}, fmt.Errorf("no record of %s: ipam-guardctl pending --all lists them", name)
	case len(begins) > 1:
		var names []string
		for _, h := range begins[:min(len(begins), 10)] {
			names = append(names, "  "+h.name())
		}
		return held{}, usagef("%s means %d records, name one of them:\n%s", name, len(begins), strings.Join(names, "\n"))
	}
	return begins[0], nil
}

// state is in what state a record is, in a word.
func (h held) state() string {
	switch {
	case errors.Is(h.Problem, journal.ErrNewer):
		return "newer"
	case h.Unreadable:
		return "unreadable"
	}
	return string(h.State)
}

// next says what a record waits for.
func (h held) next() string {
	switch {
	case h.Unreadable:
		return oneLine(h.Problem.Error())
	case h.Busy:
		return "somebody is at work on it"
	case h.Releasable && h.State != journal.Attached && h.wait() > 0:
		return "due in " + h.wait().Round(time.Second).String()
	case h.Releasable:
		return "due"
	case h.State == journal.Releasing:
		return "until its network namespace is gone"
	case h.NetnsGone:
		return "its network namespace is gone: due ten minutes after that was seen"
	}
	return "lives"
}

// wait is for how long no call tries it again.
func (h held) wait() time.Duration {
	if h.Boot != h.boot {
		return 0
	}
	return time.Duration(h.Due-journal.Uptime()) * time.Millisecond
}

// addresses are those of the result that the ADD printed.
func (h held) addresses() []string {
	type old struct {
		IP string `json:"ip"`
	}
	var result struct {
		IPs []struct {
			Address string `json:"address"`
		} `json:"ips"`
		IP4 old `json:"ip4"` // up to 0.2.0
		IP6 old `json:"ip6"`
	}
	if json.Unmarshal(h.Result, &result) != nil {
		return nil
	}
	var all []string
	for _, ip := range result.IPs {
		all = append(all, ip.Address)
	}
	for _, ip := range []old{result.IP4, result.IP6} {
		if ip.IP != "" {
			all = append(all, ip.IP)
		}
	}
	return all
}

// oneLine keeps line ends and terminal sequences of others off the terminal, and
// long texts short.
func oneLine(text string) string {
	const most = 200
	text = printable(text)
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most]) + "..."
}

// ago is how long something is past, for people.
func ago(at time.Time) string {
	d := time.Since(at)
	switch {
	case at.IsZero():
		return ""
	case d < 0:
		return "at " + at.Format(time.RFC3339) + ", by a clock that was ahead"
	case d < time.Minute:
		return d.Round(time.Second).String()
	case d < 48*time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// printable is text without line ends and terminal sequences.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
}
