package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ipam-guard/ipam-guard/pkg/chain"
	"github.com/ipam-guard/ipam-guard/pkg/conflist"
	"github.com/ipam-guard/ipam-guard/pkg/delegate"
)

type validateOptions struct {
	network  string
	nodeFile string
	cniPath  string
	networks int
	nad      bool
	noProbe  bool
}

// validated is one configuration, as runtimes see it and as the guard would go
// by it.
type validated struct {
	File     string    `json:"file"`
	Network  string    `json:"network,omitempty"`
	Runtimes string    `json:"runtimes,omitempty"` // what becomes of it in a folder
	Findings []string  `json:"findings,omitempty"`
	Guards   []guarded `json:"guards,omitempty"`
}

// guarded is one guard of a configuration.
type guarded struct {
	Plugin   string         `json:"plugin"`
	Position string         `json:"position"`
	Delegate string         `json:"delegate"`
	Settings []chain.Origin `json:"settings"`
	Times    []times        `json:"times"`
	settings chain.Settings
}

func validateCommand(t *tool) *cobra.Command {
	var o validateOptions
	cmd := &cobra.Command{
		Use:   "validate FILE|FOLDER|-",
		Short: "Read configurations as a runtime and the guard would",
		Long: `validate says of a conf folder which file counts, and which ones runtimes refuse
or pass over; of each guard in front of which delegate it stands, its settings and
where each of them comes from, and whether its deadlines fit what runtimes allow.

containerd takes the first file by name; if that one is no good it starts and stops
no pod. CRI-O loads all that are good, and the first of them is the default network.

Exit status 3: there are findings.`,
		Example: `  ipam-guardctl validate /etc/cni/net.d
  ipam-guardctl validate --networks 3 /etc/cni/net.d     pods have three networks
  ipam-guardctl validate --output json 10-pods.conflist`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.networks < 1 {
				return usagef("--networks %d: want at least 1", o.networks)
			}
			return t.validate(cmd, args[0], o)
		},
	}
	f := cmd.Flags()
	cniPathFlag(cmd, &o.cniPath)
	f.StringVar(&o.network, "network", "", "only the network of this `NAME`")
	f.StringVar(&o.nodeFile, "node-file", nodeFile, "the settings of the node")
	f.IntVar(&o.networks, "networks", 1, "how many networks like this a pod has: CRI-O's minute is for all of them")
	f.BoolVar(&o.nad, "nad", false, "the file holds the config of a NetworkAttachmentDefinition, as stdin does")
	f.BoolVar(&o.noProbe, "no-probe", false, "don't look for binaries in --cni-path")
	return cmd
}

func (t *tool) validate(cmd *cobra.Command, arg string, o validateOptions) error {
	files, err := t.filesOf(arg)
	if err != nil {
		return err
	}
	var items []validated
	found := false
	for i, file := range files.files {
		if o.network != "" && file.conf.Name != o.network {
			continue
		}
		file.nad = file.nad || o.nad
		v := validated{File: file.name(), Network: file.conf.Name}
		if files.dir != "" {
			v.Runtimes = files.fate(i)
		}
		v.look(cmd.Context(), file, o)
		found = found || len(v.Findings) > 0
		items = append(items, v)
	}
	if len(items) == 0 {
		return fmt.Errorf("%s has no network %q", arg, o.network)
	}
	if err := t.showValidated(items); err != nil {
		return err
	}
	if found {
		return ends(exitFindings)
	}
	return nil
}

// filesOf reads all that an argument names.
func (t *tool) filesOf(arg string) (folder, error) {
	if info, err := os.Stat(arg); arg != "-" && err == nil && info.IsDir() {
		return readFolder(arg)
	}
	s, err := t.source(arg, "")
	if s.text == nil {
		return folder{}, err
	}
	file := folderFile{source: s, edited: err}
	if s.path != "" {
		file.refused = loadable(s.path, s.text)
	}
	return folder{files: []folderFile{file}}, nil
}

// fate is what the runtimes do with the file at that place of the folder.
func (f folder) fate(at int) string {
	file := f.files[at]
	first := true // of those that are good
	for _, before := range f.files[:at] {
		if before.refused == nil && before.conf.Name == file.conf.Name {
			return "ignored: " + before.path + " comes first and has the same network"
		}
		first = first && before.refused != nil
	}
	switch {
	case file.refused != nil && at == 0:
		return "refused: containerd starts and stops no pod as long as this file comes first, CRI-O passes it over"
	case file.refused != nil:
		return "refused: containerd doesn't look at it, CRI-O passes it over"
	case at == 0:
		return "used: containerd's network, CRI-O's default network"
	case first:
		return "CRI-O's default network; containerd has none, because of " + f.files[0].path
	}
	return "loaded by CRI-O; containerd takes " + f.files[0].path
}

func (v *validated) find(format string, args ...any) {
	v.Findings = append(v.Findings, fmt.Sprintf(format, args...))
}

func (v *validated) look(ctx context.Context, file folderFile, o validateOptions) {
	v.lookAtAll(ctx, file, o)
	v.lookForPlugins(file, o)
	v.lookAtTimes(o.networks)
}

// lookForPlugins finds those that the runtime itself would look for in vain.
func (v *validated) lookForPlugins(file folderFile, o validateOptions) {
	if file.edited != nil || o.noProbe {
		return
	}
	for i, p := range file.conf.Plugins {
		if _, err := delegate.Find(p.Type, o.cniPath); err != nil && !p.Guarded() {
			v.find("%s: no plugin %q in %s: containerd starts no pod, CRI-O passes the file over",
				pluginName(file.conf, i), p.Type, o.cniPath)
		}
	}
}

// lookAtAll is look, but for the times.
func (v *validated) lookAtAll(ctx context.Context, file folderFile, o validateOptions) {
	if file.refused != nil && !file.nad { // Multus names what has no name
		v.find("runtimes refuse it: %v", file.refused)
	}
	if file.edited != nil {
		v.find("%s", strings.TrimPrefix(file.edited.Error(), file.name()+": ")) // it stands under the file's name
		return
	}
	v.lookAtChoices(file.source)
	for i, p := range file.conf.Plugins {
		if !p.Guarded() && !p.IPAM.Guarded() {
			v.lookForShadow(pluginName(file.conf, i), p, o)
			continue
		}
		v.lookAtGuard(file, i, o)
	}
	if file.conf.Guarded() && !o.noProbe {
		if err := probeInstalled(ctx, o.cniPath, file.conf.Version); err != nil {
			v.find("%v", err)
		}
	}
}

// lookForShadow finds the guard under the delegate's name.
func (v *validated) lookForShadow(name string, p conflist.Plugin, o validateOptions) {
	path, err := delegate.Find(p.IPAM.Type, o.cniPath)
	if err != nil || o.noProbe || !isGuard(path) {
		return
	}
	view := chain.ViewOf(p.IPAM.Type, o.nodeFile, nil)
	for _, problem := range view.Problems {
		v.find("%s: ADD is refused: %s", name, inNodeFile(problem, o.nodeFile))
	}
	v.Guards = append(v.Guards, guarded{
		Plugin: name, Position: positionShadow, Delegate: p.IPAM.Type,
		Settings: view.Origins, Times: timesOf(&view.Settings), settings: view.Settings,
	})
}

// lookAtChoices finds what wrap would not have done.
func (v *validated) lookAtChoices(s source) {
	for _, c := range choose(s, "") {
		if c.Action == actKeep && c.Why != guardedAlready {
			v.find("%s: %s", c.Plugin, c.Why)
		}
	}
}

func (v *validated) lookAtGuard(file folderFile, i int, o validateOptions) {
	p := file.conf.Plugins[i]
	outer := p.Part.Object
	if p.Guarded() {
		outer = p.Guard
	}
	name := pluginName(file.conf, i)
	view, err := chain.ViewOfNetconf(onStdin(outer, file.conf), o.nodeFile)
	if err != nil {
		v.find("%s: every call fails: %v", name, err)
		return
	}
	for _, problem := range view.Problems {
		if file.nad && problem.Key == "name" && file.conf.Name == "" {
			continue // Multus gives it the object's
		}
		v.find("%s: ADD is refused: %s", name, inNodeFile(problem, o.nodeFile))
	}
	if _, err := delegate.Find(view.Delegate, o.cniPath); err != nil && !o.noProbe {
		v.find("%s: %v", name, err)
	}
	v.Guards = append(v.Guards, guarded{
		Plugin: name, Position: view.Position, Delegate: view.Delegate,
		Settings: view.Origins, Times: timesOf(&view.Settings), settings: view.Settings,
	})
}

// inNodeFile adds to a problem with the node's file where that stops being JSON.
func inNodeFile(p chain.Problem, nodeFile string) string {
	if p.Origin != nodeFile {
		return p.String()
	}
	text, err := os.ReadFile(nodeFile)
	if at := placeIn(text); err == nil && at != "" {
		p.Origin += ", " + at
	}
	return p.String()
}

// onStdin is what the guard gets of a plugin: name and version are the list's.
func onStdin(plugin conflist.Object, c conflist.Conf) []byte {
	if !c.List {
		return plugin.Text(plugin.Span)
	}
	text := fmt.Appendf(nil, `{"cniVersion":%s,"name":%s}`, orEmpty(c.Value("cniVersion")), orEmpty(c.Value("name")))
	over, err := conflist.Parse(text)
	if err != nil {
		return plugin.Text(plugin.Span)
	}
	return plugin.Overlay(over, over.Members)
}

func orEmpty(value []byte) string {
	if value == nil {
		return `""`
	}
	return string(value)
}
