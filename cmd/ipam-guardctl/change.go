package main

import (
	"bytes"
	"fmt"
	"io"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/ipam-guard/ipam-guard/internal/atomicfile"
	"github.com/ipam-guard/ipam-guard/pkg/conflist"
)

// change is a file, and what is to stand in it.
type change struct {
	source
	to    []byte
	exact bool // of an unwrap: the original bytes
}

func (c change) changes() bool { return !bytes.Equal(c.text, c.to) }

func (c change) diff() string {
	return string(diff.Diff(c.name(), c.text, c.name()+" (new)", c.to))
}

// wrapping is the change that guards a configuration. What it would write is
// read back before anybody else can read it.
func wrapping(s source, choices []choice, settings []byte) (change, error) {
	c := change{source: s, to: wrapped(s, choices, settings)}
	if !c.changes() {
		return c, nil
	}
	again, err := conflist.Read(c.to)
	if err != nil {
		return c, fmt.Errorf("%s: wrapped, it can't be read any more: %w", s.name(), err)
	}
	if s.conf.Guarded() { // how the guards that were there are written is not ours to judge
		return c, nil
	}
	back, exact, err := again.Unwrap()
	if err != nil || !exact || !bytes.Equal(back, s.text) {
		return c, fmt.Errorf("%s: this is a mistake in ipam-guardctl, please report it: unwrap would not give the original back (%w)", s.name(), err)
	}
	return c, nil
}

// unwrapping is the change that takes all guards out of a configuration.
func unwrapping(s source) (change, error) {
	c := change{source: s}
	var err error
	c.to, c.exact, err = s.conf.Unwrap()
	return c, named(s.name(), err)
}

// write does the change: to the file, or to stdout for what came from stdin.
func (t *tool) write(c change) error {
	if c.path == "" {
		_, err := t.out.Write(c.to)
		return err
	}
	if !c.changes() {
		return nil
	}
	return atomicfile.Replace(c.path, c.text, c.to)
}

// changed is what a command has done, or would do, to one file.
type changed struct {
	File   string   `json:"file"`
	Status string   `json:"status"`
	Notes  []string `json:"notes,omitempty"`
	Diff   string   `json:"diff,omitempty"`
}

func (t *tool) showChanges(kind string, items []changed) error {
	return printItems(t, kind, items, func(w io.Writer) {
		for _, c := range items {
			fmt.Fprintf(w, "%s: %s\n", c.File, c.Status)
			for _, note := range c.Notes {
				fmt.Fprintf(w, "  %s\n", note)
			}
			fmt.Fprint(w, t.paint(c.Diff))
		}
	})
}
