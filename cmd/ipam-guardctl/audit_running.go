package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ipam-guard/ipam-guard/cmd/ipam-guardctl/internal/audit"
	"github.com/ipam-guard/ipam-guard/cmd/ipam-guardctl/internal/cri"
)

// runningOptions say who knows what runs.
type runningOptions struct {
	sockets []string
	file    string
	stdin   []byte // what it had, for the second look
}

func (o *runningOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&o.sockets, "cri", nil, "a runtime's CRI `SOCKET`; without it those of containerd, k3s, CRI-O and cri-dockerd that are there")
	f.StringVar(&o.file, "containers", "", "a `FILE` with the containers that run, one a line, in place of a runtime; - for stdin")
}

// list says what lives. Half of an answer is an error.
func (o *runningOptions) list(ctx context.Context, t *tool) (audit.Running, error) {
	r := audit.Running{IDs: map[string]bool{}, Pods: map[string]bool{}}
	if o.file != "" {
		if err := o.read(t, r.IDs); err != nil {
			return r, err
		}
		if len(o.sockets) == 0 {
			return r, nil
		}
	}
	sockets := o.sockets
	if len(sockets) == 0 {
		if sockets = cri.Present(cri.Sockets()); len(sockets) == 0 {
			return r, fmt.Errorf("no runtime's socket is there (%s): say --cri SOCKET, or --containers FILE", strings.Join(cri.Sockets(), ", "))
		}
	}
	list, err := cri.Sandboxes(ctx, sockets)
	for _, s := range list {
		r.IDs[s.ID] = true
		if s.Ready && s.Name != "" {
			r.Pods[s.Namespace+"/"+s.Name] = true
		}
	}
	return r, err
}

// read reads the file. An empty one is what a list that failed leaves: it says
// nothing.
func (o *runningOptions) read(t *tool, ids map[string]bool) (err error) {
	text := o.stdin
	switch {
	case o.file != "-":
		text, err = os.ReadFile(o.file)
	case text == nil:
		text, err = io.ReadAll(t.in)
		o.stdin = text
	}
	if err != nil {
		return err
	}
	if len(strings.TrimSpace(string(text))) == 0 {
		return usagef("--containers %s is empty: where really nothing runs, write a line that begins with #", o.file)
	}
	for line := range strings.Lines(string(text)) {
		if id := strings.TrimSpace(line); id != "" && id[0] != '#' {
			ids[id] = true
		}
	}
	return nil
}
