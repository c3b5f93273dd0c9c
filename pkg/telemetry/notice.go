package telemetry

import (
	"errors"
	"io/fs"
	"strconv"
	"strings"
	"unicode"

	"go.uber.org/zap/zapcore"
)

// notice is what goes to stderr, for people who read the runtime's journal: one
// line per thing, all in one write.
type notice struct{ text []byte }

// summary tells the line itself. The delegate's own words stay in the file,
// since a runtime that got no answer reads stderr for "not found"; they are
// here only where they would be lost otherwise.
func (n *notice) summary(line Line, level zapcore.Level, unlogged bool) {
	text := about(line) + line.Msg
	if line.Verdict != "" {
		text += " (" + line.Verdict
		if line.Rule != "" {
			text += ", rule " + line.Rule
		}
		text += ")"
	}
	if unlogged && line.Error != "" {
		text += ": " + line.Error
	}
	n.add(level, text)
}

func (n *notice) warnings(line Line) {
	for _, w := range fewer(line.Warnings) {
		n.add(zapcore.WarnLevel, about(line)+w)
	}
}

// problem tells what is wrong with the file. ENOENT in its usual words would,
// for containerd, turn a DEL that ended without an answer into a success.
func (n *notice) problem(file string, err error) {
	if err == nil {
		return
	}
	reason := err.Error()
	if errors.Is(err, fs.ErrNotExist) {
		reason = "its folder, or what it links to, is missing"
	}
	n.add(zapcore.WarnLevel, "log file "+strconv.Quote(file)+": "+reason)
}

func (n *notice) add(level zapcore.Level, text string) {
	n.text = append(n.text, "ipam-guard: "+level.String()+": "+oneLine(capped(text))+"\n"...)
}

// about says which attachment a notice is about: "DEL net1/cafe/eth0 host-local: ".
func about(line Line) string {
	var key []string
	for _, part := range []string{line.Network, line.Container, line.IfName} {
		if part != "" {
			key = append(key, part)
		}
	}
	var words []string
	for _, word := range []string{line.Verb, strings.Join(key, "/"), line.Delegate} {
		if word != "" {
			words = append(words, word)
		}
	}
	if len(words) == 0 {
		return ""
	}
	return strings.Join(words, " ") + ": "
}

// oneLine keeps line ends and terminal sequences of others out of the journal.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
}
