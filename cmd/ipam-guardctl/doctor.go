package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

type doctorOptions struct {
	recordOptions
	cniPath  string
	networks int
}

// checked is one thing that was looked at.
type checked struct {
	Check   string `json:"check"` // runtime, configuration, binary, folder, installer, times, records, clock, multus
	Finding bool   `json:"finding"`
	What    string `json:"what"`
	Why     string `json:"why,omitempty"`
	Command string `json:"command,omitempty"` // that mends it
}

const doctorHelp = `doctor looks at all of a node that the guard depends on: runtimes, their conf
folder and which configuration counts, binaries, folders that must be writable and
last, programs that write configurations anew, whether deadlines fit what runtimes
allow, records, the clock, and whether Multus sees the same folders. It changes
nothing. Each finding says why it matters, and the command that mends it.

--conf-dir and --cni-path are the runtime's own unless they are given: as it says
itself (containerd), else by its configuration files. In a container, --root is where the node's file system is mounted.

Exit status 3: there are findings. 1: there are none, but not everything could be seen.`

func doctorCommand(t *tool) *cobra.Command {
	var o doctorOptions
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look for what is wrong at a node, and say how it is mended",
		Long:  doctorHelp,
		Example: `  ipam-guardctl doctor
  ipam-guardctl doctor --networks 3      pods have three networks
  ipam-guardctl doctor --root /host --output json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.networks < 0 {
				return usagef("--networks %d: want at least 1, or 0 to go by the records", o.networks)
			}
			d := &doctor{tool: t, doctorOptions: o}
			d.ownConf = !cmd.Flags().Changed("conf-dir")
			return d.run(cmd.Context())
		},
	}
	o.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.root, "root", "", "where the node's file system is mounted, if not at /")
	f.StringVar(&o.cniPath, "cni-path", "", "the `FOLDERS` of the runtime's plugins, separated by colons")
	f.IntVar(&o.networks, "networks", 0, "how many networks a pod has; without it as many as records say")
	return cmd
}

// doctor is one look at a node.
type doctor struct {
	*tool
	doctorOptions
	ownConf  bool // the conf folder is the runtimes' to say
	runtimes []foundRuntime
	guards   []guarded // in the configurations that count
	guarded  bool      // a configuration names the guard
	blind    bool      // who asks may not see everything
	items    []checked
}

func (d *doctor) run(ctx context.Context) error {
	d.root = strings.TrimSuffix(d.root, "/")
	if d.root != "" {
		d.nodeFile, d.confDir = d.at(d.nodeFile), d.at(d.confDir)
	}
	d.lookAtRuntimes(ctx)
	for _, place := range d.places() {
		d.lookAtConfigurations(ctx, place)
		d.lookAtBinaries(ctx, place)
	}
	d.lookAtFolders()
	d.lookAtInstallers()
	all := d.lookAtRecords()
	d.lookAtTimes(all)
	d.lookAtClock(all)
	d.lookAtMultus()
	return d.show()
}

// at is where a path of the node is to be found from here.
func (d *doctor) at(path string) string {
	return d.root + path
}

func (d *doctor) ok(check, format string, args ...any) {
	d.items = append(d.items, checked{Check: check, What: d.onNode(fmt.Sprintf(format, args...))})
}

// find notes a finding: what, why it matters, and the command that mends it.
func (d *doctor) find(check, what, why, command string) {
	d.items = append(d.items, checked{check, true, d.onNode(what), d.onNode(why), d.onNode(command)})
}

// onNode has paths as the node has them.
func (d *doctor) onNode(text string) string {
	if d.root == "" {
		return text
	}
	return strings.ReplaceAll(text, d.root+"/", "/")
}

// unseen notes that something can't be told from here.
func (d *doctor) unseen(check string, err error) {
	const asRoot = ": run it as root"
	text := err.Error()
	if errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0 {
		text = strings.TrimSuffix(text, asRoot) + asRoot
		d.blind = true
	}
	d.ok(check, "not seen: %s", strings.ReplaceAll(text, "\n", "; "))
}

func (d *doctor) show() error {
	findings := 0
	for _, c := range d.items {
		if c.Finding {
			findings++
		}
	}
	err := printItems(d.tool, "Doctor", d.items, func(w io.Writer) {
		for _, c := range d.items {
			if !c.Finding {
				fmt.Fprintf(w, "ok       %-13s  %s\n", c.Check, printable(c.What))
			}
		}
		for _, c := range d.items {
			if c.Finding {
				fmt.Fprintf(w, "\nFINDING  %-13s  %s\n", c.Check, printable(c.What))
				fmt.Fprintf(w, "         why            %s\n         command        %s\n", printable(c.Why), printable(c.Command))
			}
		}
		fmt.Fprintf(w, "\n%s\n", count(findings, "finding"))
	})
	switch {
	case err != nil:
		return err
	case findings > 0:
		return ends(exitFindings)
	case d.blind:
		return &exitError{exitFailed, errors.New("not everything could be seen: run it as root")}
	}
	return nil
}
