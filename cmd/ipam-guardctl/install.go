package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ipam-guard/ipam-guard/internal/atomicfile"
	"github.com/ipam-guard/ipam-guard/pkg/conflist"
	"github.com/ipam-guard/ipam-guard/pkg/delegate"
)

// step is one thing that install or uninstall did, would do, or left.
type step struct {
	What   string `json:"what"` // binary, configuration, record, cached result
	Name   string `json:"name"`
	Status string `json:"status"`
	Diff   string `json:"diff,omitempty"`
}

func (t *tool) showSteps(kind string, steps []step) error {
	return printItems(t, kind, steps, func(w io.Writer) {
		var rows [][]string
		for _, s := range steps {
			rows = append(rows, []string{s.What, s.Name, s.Status})
		}
		columns(w, rows)
		for _, s := range steps {
			fmt.Fprint(w, t.paint(s.Diff))
		}
	})
}

type installOptions struct {
	wrapOptions
	binary string
	shadow string
}

const installHelp = `install puts a node's network behind the guard, in this order:

 1. The binary goes to a folder of --cni-path: written beside its place, synced,
    asked for VERSION with the configuration's cniVersion, and only then renamed
    to its place.
 2. The configuration that the runtime uses is wrapped, as wrap does it.

Killed at any point, the network works as before or as after; the same command
again finishes the job, and does nothing where all is done. Where it says that
there is nothing to wrap, nothing was changed.

--shadow TYPE installs the guard under the name of the IPAM plugin TYPE in the
first folder of --cni-path; the plugin itself must be in a later one, and no
configuration changes. It is for NetworkAttachmentDefinitions with whereabouts,
and for main plugins that look at ipam.type. The runtime, and Multus, must have
the same folders in the same order. The runtimes that are found here are looked at:
what a configuration of theirs lacks is said, with exit status 3, and the guard is
installed all the same, since it does nothing until a runtime looks there.
--no-probe leaves that out, where the runtime is set up later. containerd has such
a list only from version 2.1 on.`

func installCommand(t *tool) *cobra.Command {
	var o installOptions
	cmd := &cobra.Command{
		Use:   "install [FOLDER|FILE]",
		Short: "The binary, then the configuration: guard a node",
		Long:  installHelp,
		Example: `  ipam-guardctl install --dry-run /etc/cni/net.d
  ipam-guardctl install /etc/cni/net.d
  ipam-guardctl install --binary ./bin/ipam-guard --cni-path /usr/lib/cni /etc/cni/net.d
  ipam-guardctl install --shadow whereabouts --cni-path /opt/ipam-guard/shadow:/opt/cni/bin`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			switch {
			case o.shadow != "" && len(args) > 0:
				return usagef("--shadow changes no configuration: leave out %s", args[0])
			case o.shadow != "" && !bareName(o.shadow), o.shadow == conflist.Guard:
				return usagef("--shadow %s: want the name of an IPAM plugin", o.shadow)
			case o.shadow == "" && o.position == positionShadow:
				return usagef("--position shadow: say --shadow TYPE, the IPAM plugin's name")
			case o.shadow == "" && o.noProbe:
				return usagef("--no-probe goes with --shadow")
			case o.shadow == "" && len(args) == 0:
				return usagef(wantFolder)
			case o.shadow != "":
				return t.installShadow(cmd.Context(), o)
			}
			return t.install(cmd.Context(), args[0], o)
		},
	}
	o.flags(cmd)
	cmd.Flags().StringVar(&o.binary, "binary", "", "the ipam-guard to install; without it the one beside this tool")
	cmd.Flags().StringVar(&o.shadow, "shadow", "", "install under the name of the IPAM plugin `TYPE`")
	cmd.Flags().BoolVar(&o.noProbe, "no-probe", false, "with --shadow, don't look at the runtimes")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "show what would be done, change nothing; exit status 4 if there is something")
	cniPathFlag(cmd, &o.cniPath)
	return cmd
}

func (t *tool) install(ctx context.Context, arg string, o installOptions) error {
	s, err := t.source(arg, o.network)
	if err != nil {
		return err
	}
	if s.path == "" {
		return usagef("install works on a node's folder or file, not on stdin: see wrap")
	}
	c, choices, err := t.plannedWrap(s, o.wrapOptions)
	if err != nil {
		return err
	}
	if !c.changes() && !having(choices, actKeep) {
		return nothing(choices)
	}
	dirs, err := folders(o.cniPath)
	if err != nil {
		return err
	}
	b, err := o.guard(place(dirs, choices, s.conf), s.conf.Version)
	if err != nil {
		return err
	}
	t.warnMissing(o.cniPath, choices, s.conf)
	if o.dryRun {
		return t.wouldInstall(b, c)
	}
	steps, err := b.install(ctx)
	if err != nil {
		return err
	}
	o.cniPath = filepath.Dir(b.to)
	if c.changes() {
		if c, _, err = t.carryOut(ctx, c, choices, o.wrapOptions); err != nil {
			_ = t.showSteps("Install", steps)
			return &exitError{exitPartly, fmt.Errorf("the binary is in place, the configuration is as it was: %w", err)}
		}
	}
	steps = append(steps, step{What: "configuration", Name: c.path, Status: done(c.changes(), "wrapped", "guarded already")})
	if err := t.showSteps("Install", steps); err != nil {
		return err
	}
	if findings(choices) {
		return nothing(choices)
	}
	return nil
}

func done(changed bool, now, before string) string {
	if changed {
		return now
	}
	return before
}

// binary is the guard, and where it goes.
type binary struct {
	from, to   string
	text       []byte
	cniVersion string
}

// guard finds the binary that is to be installed, and looks whether it may go
// there.
func (o installOptions) guard(to, cniVersion string) (binary, error) {
	b := binary{from: o.binary, to: to, cniVersion: cniVersion}
	if b.from == "" {
		self, err := os.Executable()
		if err != nil {
			return b, err
		}
		b.from = filepath.Join(filepath.Dir(self), conflist.Guard)
	}
	var err error
	if b.text, err = os.ReadFile(b.from); err != nil {
		if o.binary == "" && errors.Is(err, fs.ErrNotExist) {
			return b, fmt.Errorf("no %s beside this tool (%w): copy it there, or say --binary FILE", conflist.Guard, err)
		}
		return b, named("--binary", err)
	}
	if !isGuard(b.from) {
		return b, fmt.Errorf("%s %w", b.from, errNotGuard)
	}
	if dir := filepath.Dir(to); !isFolder(dir) {
		return b, fmt.Errorf("there is no folder %s: mkdir -p %s   # or say another --cni-path", dir, dir)
	}
	if _, err := os.Lstat(to); err == nil && !isGuard(to) {
		return b, fmt.Errorf("%s is there and %w: it is left alone", to, errNotGuard)
	}
	return b, nil
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func (b binary) changes() bool {
	now, err := os.ReadFile(b.to)
	return err != nil || string(now) != string(b.text)
}

// install writes the binary, and asks it before and after it takes its place: a
// folder may be mounted without the right to execute.
func (b binary) install(ctx context.Context) ([]step, error) {
	changed, err := atomicfile.Install(b.to, b.text, func(path string) error { return probe(ctx, path, b.cniVersion) })
	if err == nil {
		err = probe(ctx, b.to, b.cniVersion)
	}
	if err != nil {
		return nil, err
	}
	return []step{{What: "binary", Name: b.to, Status: done(changed, "installed", "installed already")}}, nil
}

func (t *tool) wouldInstall(b binary, c change) error {
	steps := []step{{What: "binary", Name: b.to, Status: done(b.changes(), "would be installed", "installed already")}}
	if c.path != "" {
		steps = append(steps, step{What: "configuration", Name: c.path,
			Status: done(c.changes(), "would be wrapped", "guarded already"), Diff: c.diff()})
	}
	if err := t.showSteps("Install", steps); err != nil {
		return err
	}
	if b.changes() || c.changes() {
		return ends(exitWouldChange)
	}
	return nil
}

// place is where the guard goes: where it is already, else beside the plugins
// that it stands in front of, else the first folder.
func place(dirs []string, choices []choice, c conflist.Conf) string {
	names := []string{conflist.Guard}
	for i, p := range choices {
		if p.Action == actWrap || p.Action == actKeep {
			names = append(names, delegateOf(p, c.Plugins[i]))
		}
	}
	for _, name := range names {
		if path, err := delegate.Find(name, strings.Join(dirs, ":")); err == nil {
			return filepath.Join(filepath.Dir(path), conflist.Guard)
		}
	}
	return filepath.Join(dirs[0], conflist.Guard)
}

// delegateOf is the type of what the guard runs.
func delegateOf(c choice, p conflist.Plugin) string {
	if c.Position == positionPlugin {
		return p.Type
	}
	return p.IPAM.Type
}

func (t *tool) warnMissing(cniPath string, choices []choice, c conflist.Conf) {
	for i, p := range choices {
		if p.Action != actWrap {
			continue
		}
		if _, err := delegate.Find(delegateOf(p, c.Plugins[i]), cniPath); err != nil {
			t.warn("%v", err)
		}
	}
}
