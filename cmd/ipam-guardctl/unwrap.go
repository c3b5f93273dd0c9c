package main

import (
	"errors"

	"github.com/spf13/cobra"
)

func unwrapCommand(t *tool) *cobra.Command {
	var network string
	var all, dryRun bool
	cmd := &cobra.Command{
		Use:   "unwrap FILE|FOLDER|-",
		Short: "Take the guard out again: the original bytes",
		Long: `unwrap takes every guard out of a configuration, and gives the original bytes
back. Changes that others made elsewhere in the file since stay. Where somebody
wrote into the guard's own object (or formatted the file anew), what it has beside
the guard's keys is kept too, and unwrap says so.

Of a folder it takes the file that the runtime uses; --all takes all of them.`,
		Example: `  ipam-guardctl unwrap --dry-run /etc/cni/net.d
  ipam-guardctl unwrap /etc/cni/net.d/10-pods.conflist
  ipam-guardctl unwrap - <config.json`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if all && network != "" {
				return usagef("--all and --network: want one of them")
			}
			list, err := t.toUnwrap(args[0], network, all)
			if err != nil {
				return err
			}
			return t.unwrap(list, dryRun)
		},
	}
	cmd.Flags().StringVar(&network, "network", "", "of a folder, the network of this `NAME` instead of the one that the runtime uses")
	cmd.Flags().BoolVar(&all, "all", false, "of a folder, every file")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show the change, write nothing; exit status 4 if there is one")
	return cmd
}

func (t *tool) toUnwrap(arg, network string, all bool) ([]source, error) {
	if !all {
		s, err := t.source(arg, network)
		return []source{s}, err
	}
	f, err := readFolder(arg)
	if err != nil {
		return nil, err
	}
	return f.guarded()
}

// guarded are the files of a folder that name the guard. One that can't be read at
// all, or not be understood but holds its name, is an error: it may be one.
func (f folder) guarded() ([]source, error) {
	var list []source
	for _, file := range f.files {
		switch {
		case file.edited != nil && (file.text == nil || file.namesGuard()):
			return nil, file.edited
		case file.edited == nil && file.conf.Guarded():
			list = append(list, file.source)
		}
	}
	return list, nil
}

func (t *tool) unwrap(list []source, dryRun bool) error {
	var items []changed
	var errs []error
	status := 0
	for _, s := range list {
		c, err := unwrapping(s)
		if err == nil && !dryRun {
			err = t.write(c)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		item := c.unwrapped(dryRun)
		if dryRun && c.changes() {
			status = exitWouldChange
		}
		items = append(items, item)
	}
	if len(list) == 1 && list[0].path == "" && !dryRun && errs == nil {
		t.notes(items) // stdout has the result
		return nil
	}
	if err := t.showChanges("Unwrap", items); err != nil {
		return err
	}
	if len(errs) > 0 {
		if len(items) > 0 && !dryRun {
			return &exitError{exitPartly, errors.Join(errs...)}
		}
		return errors.Join(errs...)
	}
	return ends(status)
}

// notes tells what there is to say beside a result on stdout.
func (t *tool) notes(items []changed) {
	for _, item := range items {
		for _, note := range item.Notes {
			t.warn("%s: %s", item.File, note)
		}
	}
}

func (c change) unwrapped(dryRun bool) changed {
	item := changed{File: c.name(), Status: "unwrapped"}
	switch {
	case !c.changes():
		item.Status = "not guarded"
	case !c.exact:
		item.Notes = []string{"it was changed since it was wrapped: the guard's object was taken out by its meaning, what others wrote into it was kept, and the text may differ from the original"}
	}
	if dryRun && c.changes() {
		item.Status, item.Diff = "would be unwrapped", c.diff()
	}
	return item
}
