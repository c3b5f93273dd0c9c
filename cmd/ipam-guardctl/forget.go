package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ipam-guard/ipam-guard/pkg/chain"
	"github.com/ipam-guard/ipam-guard/pkg/journal"
)

type forgetOptions struct {
	recordOptions
	reason string
	yes    bool
	dryRun bool
	wait   time.Duration
}

// forgotten is what was given up.
type forgotten struct {
	Name      string   `json:"name"`
	State     string   `json:"state"`
	Addresses []string `json:"addresses,omitempty"`
	Status    string   `json:"status"`
}

func forgetCommand(t *tool) *cobra.Command {
	var o forgetOptions
	cmd := &cobra.Command{
		Use:   "forget RECORD",
		Short: "Give one record up on purpose: its address is not released",
		Long: `forget ends a record without a DEL. Its address stays taken until somebody frees it
at the delegate: use it where that was done, or where the delegate's store is gone.
Try replay first. A record that can't be read is moved to the folder aside.

It asks on a terminal, and needs --yes and --reason without one. Who did it and why
goes to the guard's log.`,
		Example: `  ipam-guardctl forget 3f2a91 --dry-run
  ipam-guardctl forget 3f2a91/eth0@pods@whereabouts --reason 'pool was deleted'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return t.forget(cmd.Context(), o, args[0]) },
	}
	o.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.reason, "reason", "", "why, for the log")
	f.BoolVar(&o.yes, "yes", false, "don't ask")
	f.BoolVar(&o.dryRun, "dry-run", false, "show what would be given up, change nothing; exit status 4")
	f.DurationVar(&o.wait, "wait", 10*time.Second, "how long to wait for who is at work on the record")
	return cmd
}

func (t *tool) forget(ctx context.Context, o forgetOptions, name string) error {
	all, unseen := t.records(o.recordOptions, false, name)
	h, err := find(all, name)
	if err != nil {
		return firstOf(unseen, err)
	}
	if errors.Is(h.Problem, journal.ErrNewer) {
		return fmt.Errorf("%s was %w: use the newer ipam-guardctl", h.name(), h.Problem)
	}
	item := forgotten{h.name(), h.state(), h.addresses(), "would be given up"}
	if o.dryRun {
		if err := t.showForgotten(item); err != nil {
			return err
		}
		return ends(exitWouldChange)
	}
	if err := t.askToForget(&o, h); err != nil {
		return err
	}
	a := t.admin(o.nodeFile, h.dir)
	a.Wait, a.Who, a.Why = o.wait, t.who(), o.reason
	item.Status = "given up"
	switch err := a.Forget(ctx, h.Key); {
	case errors.Is(err, chain.ErrSetAside):
		item.Status = "set aside"
	case err != nil:
		return fmt.Errorf("%s: %w", h.name(), err)
	}
	return t.showForgotten(item)
}

// askToForget shows what would be given up, and gets a yes and a reason.
func (t *tool) askToForget(o *forgetOptions, h held) error {
	if o.reason = strings.TrimSpace(printable(o.reason)); o.reason == "" && !t.asks() {
		return usagef("there is no terminal to ask: say --reason TEXT and --yes")
	}
	for _, line := range h.whatLives() {
		fmt.Fprintln(t.err, line)
	}
	if err := t.sure(o.yes, "Give it up? Its address stays taken."); err != nil {
		return err
	}
	if o.reason == "" {
		o.reason = printable(t.ask("Why?"))
	}
	if o.reason == "" {
		return &exitError{exitFailed, errors.New("nothing was done: the log needs a reason")}
	}
	return nil
}

func (t *tool) showForgotten(item forgotten) error {
	return printItems(t, "Forget", []forgotten{item}, func(w io.Writer) {
		columns(w, [][]string{{oneLine(item.Name), item.State, orNone(joined(item.Addresses)), item.Status}})
	})
}
