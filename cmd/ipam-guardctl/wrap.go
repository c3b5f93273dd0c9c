package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ipam-guard/ipam-guard/internal/atomicfile"
	"github.com/ipam-guard/ipam-guard/pkg/chain"
)

// wrapOptions say what is wrapped, and how.
type wrapOptions struct {
	network  string
	position string
	settings string
	nad      bool
	dryRun   bool
	noProbe  bool
	cniPath  string
}

func (o *wrapOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.network, "network", "", "of a folder, the network of this `NAME` instead of the one that the runtime uses")
	f.StringVar(&o.position, "position", "", "ipam, plugin or shadow; without it the one that fits the plugin")
	f.StringVar(&o.settings, "settings", "", "settings for the guard object: a `JSON` object")
	f.BoolVar(&o.nad, "nad", false, "the files hold configs of NetworkAttachmentDefinitions, as stdin does")
}

func (o *wrapOptions) check() error {
	switch o.position {
	case "", positionIPAM, positionPlugin, positionShadow:
	default:
		return usagef("--position %s: want ipam, plugin or shadow", o.position)
	}
	if o.settings == "" {
		return nil
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal([]byte(o.settings), &object); err != nil {
		return usagef("--settings: want a JSON object: %w", err)
	}
	for _, p := range chain.ViewOf("", "", o.settingsText()).Problems {
		return usagef("--settings: %s", p)
	}
	return nil
}

func (o *wrapOptions) settingsText() []byte {
	if o.settings == "" {
		return nil
	}
	return []byte(strings.TrimSpace(o.settings))
}

func wrapCommand(t *tool) *cobra.Command {
	var o wrapOptions
	cmd := &cobra.Command{
		Use:   "wrap FILE|FOLDER|-",
		Short: "Put the guard around plugins, changing no other byte",
		Long: `wrap puts the guard in front of the plugins of a configuration, and changes no
byte but what it inserts, so that unwrap gives the original back. Of a folder it
takes the file that the runtime uses. - is the config of a
NetworkAttachmentDefinition on stdin; the result goes to stdout. What is guarded
stays as it is.

A file is only changed if the ipam-guard in --cni-path answers and speaks the
file's version: a runtime that meets a configuration without its binary can't
start pods. --no-probe leaves that out, for files that are not on a node.`,
		Example: `  ipam-guardctl wrap --dry-run /etc/cni/net.d
  ipam-guardctl wrap --network storage /etc/cni/net.d
  ipam-guardctl wrap --no-probe --settings '{"timeout": {"del": "15s"}}' templates/10-pods.conflist
  ipam-guardctl wrap --position ipam - <config.json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			s, err := t.source(args[0], o.network)
			if err != nil {
				return err
			}
			s.nad = s.nad || o.nad
			return t.wrap(cmd.Context(), s, o)
		},
	}
	o.flags(cmd)
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "show the change, write nothing; exit status 4 if there is one")
	cmd.Flags().BoolVar(&o.noProbe, "no-probe", false, "don't ask the binary first")
	cniPathFlag(cmd, &o.cniPath)
	return cmd
}

// errNothing: there is no plugin that a guard could stand in front of here.
var errNothing = errors.New("there is nothing to wrap")

func nothing(choices []choice) error {
	var why []string
	for _, c := range choices {
		why = append(why, c.Plugin+": "+c.Why)
	}
	return &exitError{exitFindings, fmt.Errorf("%w: %s", errNothing, strings.Join(why, "; "))}
}

func (t *tool) wrap(ctx context.Context, s source, o wrapOptions) error {
	c, choices, err := t.plannedWrap(s, o)
	if err != nil {
		return err
	}
	if !c.changes() && !having(choices, actKeep) {
		if s.path == "" && !o.dryRun {
			_ = t.write(c) // what the pipe goes to gets it as it was
		}
		return nothing(choices)
	}
	if c.changes() && !o.dryRun {
		if c, choices, err = t.carryOut(ctx, c, choices, o); err != nil {
			return err
		}
	}
	item := wrappedItem(c, choices, o.dryRun)
	if s.path == "" && !o.dryRun {
		t.notes([]changed{item})
		if !c.changes() {
			return t.write(c)
		}
		return nil
	}
	if err := t.showChanges("Wrap", []changed{item}); err != nil {
		return err
	}
	switch {
	case findings(choices):
		return ends(exitFindings)
	case o.dryRun && c.changes():
		return ends(exitWouldChange)
	}
	return nil
}

func (t *tool) plannedWrap(s source, o wrapOptions) (change, []choice, error) {
	choices := choose(s, o.position)
	c, err := wrapping(s, choices, o.settingsText())
	return c, choices, err
}

// others is how often somebody else may change the file while we do.
const others = 3

// carryOut writes the change, of the file as it is by then.
func (t *tool) carryOut(ctx context.Context, c change, choices []choice, o wrapOptions) (change, []choice, error) {
	if c.path != "" && !o.noProbe {
		if err := probeInstalled(ctx, o.cniPath, c.conf.Version); err != nil {
			return c, nil, err
		}
	}
	for n := 1; ; n++ {
		err := t.write(c)
		if !errors.Is(err, atomicfile.ErrChanged) || n == others {
			return c, choices, err
		}
		again, err := readFile(c.path)
		if err != nil {
			return c, nil, err
		}
		again.nad = c.nad
		if c, choices, err = t.plannedWrap(again, o); err != nil || !c.changes() {
			return c, choices, err
		}
	}
}

func wrappedItem(c change, choices []choice, dryRun bool) changed {
	item := changed{File: c.name(), Status: "wrapped"}
	switch {
	case !c.changes():
		item.Status = "guarded already"
	case dryRun:
		item.Status, item.Diff = "would be wrapped", c.diff()
	}
	for _, p := range choices {
		if p.Action == actWrap || p.Action == actOther || p.Action == actKeep && p.Why != guardedAlready {
			item.Notes = append(item.Notes, fmt.Sprintf("%s: position %s: %s", p.Plugin, p.Position, p.Why))
		}
	}
	return item
}
