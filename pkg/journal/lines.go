package journal

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/ipam-guard/ipam-guard/pkg/conflist"
)

// How records are written and read: by hand, since reflection would cost more
// than all the rest of a record, for every pod.

// line is a JSON object in the making.
type line struct{ text []byte }

func (l *line) name(name string) {
	if len(l.text) == 0 {
		l.text = append(make([]byte, 0, 1024), '{')
	} else {
		l.text = append(l.text, ',')
	}
	l.text = append(conflist.AppendString(l.text, name), ':')
}

func (l *line) str(name, value string) {
	l.name(name)
	l.text = conflist.AppendString(l.text, value)
}

func (l *line) number(name string, n int64) {
	l.name(name)
	l.text = strconv.AppendInt(l.text, n, 10)
}

func (l *line) unsigned(name string, n uint64) {
	l.name(name)
	l.text = strconv.AppendUint(l.text, n, 10)
}

func (l *line) flag(name string, on bool) {
	l.name(name)
	l.text = strconv.AppendBool(l.text, on)
}

// bytes writes what must come back as it was: a string, so that people can read
// it, or {"base64": "..."} where that would lose something.
func (l *line) bytes(name string, value []byte) {
	if utf8.Valid(value) {
		l.str(name, string(value))
		return
	}
	l.name(name)
	l.text = append(l.text, `{"base64":"`...)
	l.text = base64.StdEncoding.AppendEncode(l.text, value)
	l.text = append(l.text, `"}`...)
}

// raw writes JSON on one line: in JSON a line break is white space.
func (l *line) raw(name string, value []byte) {
	l.name(name)
	for _, c := range value {
		if c == '\n' || c == '\r' {
			c = ' '
		}
		l.text = append(l.text, c)
	}
}

func (l *line) list(name string, values []string) {
	l.name(name)
	l.text = append(l.text, '[')
	for i, v := range values {
		if i > 0 {
			l.text = append(l.text, ',')
		}
		l.text = conflist.AppendString(l.text, v)
	}
	l.text = append(l.text, ']')
}

func (l *line) end() []byte { return append(l.text, '}') }

func (l *line) key(k *Key) {
	l.str("network", k.Network)
	l.str("container", k.Container)
	l.str("ifname", k.IfName)
	l.str("delegate", k.Delegate)
}

func (l *line) facts(f *Facts) {
	l.bytes("netconf", f.Netconf)
	if f.Guard != nil {
		l.raw("guard", f.Guard)
	}
	l.str("args", f.Args)
	l.str("path", f.Path)
	l.str("binary", f.Binary)
	var p line
	p.str("path", f.Netns.Path)
	p.unsigned("dev", f.Netns.Dev)
	p.unsigned("inode", f.Netns.Inode)
	p.unsigned("mntns", f.Netns.MntNS)
	p.str("boot", f.Netns.Boot)
	l.raw("netns", p.end())
}

func (l *line) status(s *Status) {
	l.str("state", string(s.State))
	l.str("owed", string(s.Owed))
	l.flag("started", s.Started)
	l.flag("gone", s.Gone)
	l.number("tries", int64(s.Tries))
	l.str("lastError", s.LastError)
	l.str("boot", s.Boot)
	l.number("due", s.Due)
	l.number("goneSince", s.GoneSince)
	l.str("mark", s.Mark)
}

// whole is a record's first line.
func (r *Record) whole() []byte {
	var l line
	l.number("version", int64(r.Version))
	l.str("created", r.Created)
	l.key(&r.Key)
	l.facts(&r.Facts)
	if r.Result != nil {
		l.bytes("result", r.Result)
	}
	l.status(&r.Status)
	if len(r.Confirmed) > 0 {
		l.list("confirmed", r.Confirmed)
	}
	return l.end()
}

// difference is the line that makes next of r: all of its status, and what else
// has changed.
func (r *Record) difference(next *Record) []byte {
	var l line
	if !r.sameFacts(next) {
		l.facts(&next.Facts)
	}
	if !bytes.Equal(r.Result, next.Result) {
		l.bytes("result", next.Result)
	}
	l.status(&next.Status)
	if len(r.Confirmed)+len(next.Confirmed) > 0 {
		l.list("confirmed", next.Confirmed)
	}
	return l.end()
}

func (r *Record) sameFacts(next *Record) bool {
	a, b := &r.Facts, &next.Facts
	return bytes.Equal(a.Netconf, b.Netconf) && bytes.Equal(a.Guard, b.Guard) &&
		a.Args == b.Args && a.Path == b.Path && a.Binary == b.Binary && a.Netns == b.Netns
}

// read takes over what a line says. Members that we don't know are passed over,
// and stay in the file.
func (r *Record) read(o conflist.Object) error {
	for _, m := range o.Members {
		if err := r.member(m.Name, o.Text(m.Value), o, m); err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
	}
	return nil
}

func (r *Record) member(name string, value []byte, o conflist.Object, m conflist.Member) (err error) {
	switch name {
	case "version":
		err = number(value, &r.Version)
	case "created":
		err = text(value, &r.Created)
	case "network":
		err = text(value, &r.Network)
	case "container":
		err = text(value, &r.Container)
	case "ifname":
		err = text(value, &r.IfName)
	case "delegate":
		err = text(value, &r.Delegate)
	case "netconf":
		err = whole(value, &r.Netconf)
	case "result":
		err = whole(value, &r.Result)
	case "guard":
		r.Guard = bytes.Clone(value)
	case "args":
		err = text(value, &r.Args)
	case "path":
		err = text(value, &r.Path)
	case "binary":
		err = text(value, &r.Binary)
	case "netns":
		var p conflist.Object
		if p, err = o.Nested(m); err == nil {
			err = r.Netns.read(p)
		}
	default:
		err = r.Status.member(name, value)
	}
	return err
}

func (s *Status) member(name string, value []byte) (err error) {
	switch name {
	case "state":
		err = text(value, &s.State)
	case "owed":
		err = text(value, &s.Owed)
	case "started":
		err = flag(value, &s.Started)
	case "gone":
		err = flag(value, &s.Gone)
	case "tries":
		err = number(value, &s.Tries)
	case "lastError":
		err = text(value, &s.LastError)
	case "boot":
		err = text(value, &s.Boot)
	case "due":
		err = number(value, &s.Due)
	case "goneSince":
		err = number(value, &s.GoneSince)
	case "mark":
		err = text(value, &s.Mark)
	case "confirmed":
		err = texts(value, &s.Confirmed)
	}
	return err
}

func (p *Place) read(o conflist.Object) (err error) {
	for _, m := range o.Members {
		value := o.Text(m.Value)
		switch m.Name {
		case "path":
			err = text(value, &p.Path)
		case "dev":
			err = number(value, &p.Dev)
		case "inode":
			err = number(value, &p.Inode)
		case "mntns":
			err = number(value, &p.MntNS)
		case "boot":
			err = text(value, &p.Boot)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
	}
	return nil
}

func text[T ~string](value []byte, into *T) error {
	s, ok := conflist.String(value)
	if !ok {
		return fmt.Errorf("%.40s is no string", value)
	}
	*into = T(s)
	return nil
}

func number[T int | int64 | uint64](value []byte, into *T) error {
	if n, err := strconv.ParseInt(string(value), 10, 64); err == nil && T(n) >= 0 {
		*into = T(n)
		return nil
	}
	n, err := strconv.ParseUint(string(value), 10, 64)
	if err != nil || uint64(T(n)) != n || T(n) < 0 {
		return fmt.Errorf("%.40s is no number that fits", value)
	}
	*into = T(n)
	return nil
}

func texts(value []byte, into *[]string) error {
	elements, ok := conflist.Elements(value, conflist.Span{End: len(value)})
	if !ok {
		return fmt.Errorf("%.40s is no list", value)
	}
	*into = nil
	for _, e := range elements {
		var s string
		if err := text(value[e.Start:e.End], &s); err != nil {
			return err
		}
		*into = append(*into, s)
	}
	return nil
}

func flag(value []byte, into *bool) error {
	switch string(value) {
	case "true", "false":
		*into = value[0] == 't'
		return nil
	}
	return fmt.Errorf("%.40s is neither true nor false", value)
}

func whole(value []byte, into *[]byte) error {
	if s, ok := conflist.String(value); ok {
		*into = []byte(s)
		return nil
	}
	o, err := conflist.Parse(value)
	if err != nil {
		return err
	}
	s, _ := conflist.String(o.Value("base64"))
	*into, err = base64.StdEncoding.DecodeString(s)
	return err
}
