package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// planned is what wrap would do with one configuration.
type planned struct {
	File    string   `json:"file"`
	Network string   `json:"network"`
	Plugins []choice `json:"plugins"`
	Diff    string   `json:"diff,omitempty"`
}

func planCommand(t *tool) *cobra.Command {
	var o wrapOptions
	cmd := &cobra.Command{
		Use:   "plan FILE|FOLDER|-...",
		Short: "Show what wrap would change, where the guard would sit, and why there",
		Long: `plan shows the change that wrap would make, the position that it chose for each
plugin and why. Nothing is written. Of a folder it takes the file that the
runtime uses; - is the config of a NetworkAttachmentDefinition on stdin.

Exit status: 0 nothing to change, 4 wrap would change something, 3 something
can't be guarded by an edit here, or is guarded in a wrong way.`,
		Example: `  ipam-guardctl plan /etc/cni/net.d
  ipam-guardctl plan --position plugin 10-calico.conflist
  kubectl get nad storage -o jsonpath='{.spec.config}' | ipam-guardctl plan -`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return t.plan(args, o) },
	}
	o.flags(cmd)
	return cmd
}

func (t *tool) plan(args []string, o wrapOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	var items []planned
	status := 0
	for _, arg := range args {
		s, err := t.source(arg, o.network)
		if err != nil {
			return err
		}
		s.nad = s.nad || o.nad
		choices := choose(s, o.position)
		c, err := wrapping(s, choices, o.settingsText())
		if err != nil {
			return err
		}
		items = append(items, planned{s.name(), s.conf.Name, choices, c.diff()})
		switch {
		case findings(choices):
			status = exitFindings
		case c.changes() && status == 0:
			status = exitWouldChange
		}
	}
	if err := t.showPlan(items); err != nil {
		return err
	}
	return ends(status)
}

// findings: something for the administrator to decide.
func findings(choices []choice) bool {
	for _, c := range choices {
		if c.Action == actOther || strings.HasPrefix(c.Why, "WRONG") {
			return true
		}
	}
	return false
}

func (t *tool) showPlan(items []planned) error {
	return printItems(t, "Plan", items, func(w io.Writer) {
		for _, p := range items {
			fmt.Fprintf(w, "%s, network %s\n", p.File, orNone(p.Network))
			rows := [][]string{}
			for _, c := range p.Plugins {
				rows = append(rows, []string{"  " + c.Plugin, orNone(c.Delegate), c.Action, orNone(c.Position), c.Why})
			}
			columns(w, rows)
			if p.Diff == "" {
				fmt.Fprintln(w, "nothing to change")
			}
			fmt.Fprint(w, t.paint(p.Diff))
		}
	})
}

func orNone(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
