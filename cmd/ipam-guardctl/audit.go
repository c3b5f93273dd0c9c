package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/ipam-guard/ipam-guard/cmd/ipam-guardctl/internal/audit"
	"github.com/ipam-guard/ipam-guard/cmd/ipam-guardctl/internal/store"
)

type auditOptions struct {
	recordOptions
	runningOptions
	cniPath    string
	dataDirs   []string
	kubeconfig string
	release    bool
	yes        bool
	dryRun     bool
	wait       time.Duration
}

const auditHelp = `audit compares what delegates hold (host-local's files; whereabouts' IPPools and
OverlappingRangeIPReservations, by a kubeconfig) with what runs (the runtimes, by
their CRI sockets, and the addresses of all interfaces) and with the guard's
records. It works without the guard, too. What it finds:

 leaked       held for a container that is gone
 empty        held for nobody: its writer was killed halfway
 foreign      no address at all, or none of this node's networks
 duplicate    held for two that live, or a second address of one attachment
 unheld       a living attachment has it, and its delegate gives it to the next pod
 reservation  whereabouts' second mark on an address that no pool has

It looks twice, so that what comes and goes is no finding. Of each it says why, and
what mends it. Of what is owed by records, see pending and replay.

--release frees the leaked ones, by a DEL of their delegate under the guard's lock,
after it has shown them. It asks on a terminal, and needs --yes without one. Each is
looked at again after a minute, in which its record is locked: a container that a
runtime lists by then, or an address that an interface has, is left. An attachment
on record must have lost its network namespace ten minutes ago, and what has no
record must be ten minutes old.

Exit status: 0 nothing found, 3 findings, 1 failed, or not all could be seen; with --release 0 all is well
now, 5 some were not released; with --dry-run 4 something would be released.`

func auditCommand(t *tool) *cobra.Command {
	var o auditOptions
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Compare what delegates hold with what runs: leaked addresses, and others",
		Long:  auditHelp,
		Example: `  ipam-guardctl audit
  ipam-guardctl audit --release --dry-run
  ipam-guardctl audit --release --yes --output json
  podman ps -q --no-trunc | ipam-guardctl audit --containers -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return (&auditing{tool: t, auditOptions: o}).run(cmd.Context())
		},
	}
	o.recordOptions.flags(cmd)
	o.runningOptions.flags(cmd)
	cniPathFlag(cmd, &o.cniPath)
	f := cmd.Flags()
	f.StringArrayVar(&o.dataDirs, "data-dir", []string{store.HostLocalDir}, "a folder of host-local's, beside those that configurations and records name")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "for whereabouts; without it the file that its configurations name")
	f.BoolVar(&o.release, "release", false, "free what is leaked")
	f.BoolVar(&o.yes, "yes", false, "with --release: don't ask")
	f.BoolVar(&o.dryRun, "dry-run", false, "with --release: show what would be freed, change nothing; exit status 4 if there is something")
	f.DurationVar(&o.wait, "wait", 30*time.Second, "with --release: how long to wait, for each address, for who is at work")
	return cmd
}

// auditing is one audit.
type auditing struct {
	*tool
	auditOptions
	stores []delegateStore // that were read, in the last look
	unseen []error         // what could not be looked at
	tidy   []func()        // what is done when all is released

	clusters map[string]bool // whose pools were read, by kubeconfig
}

func (a *auditing) run(ctx context.Context) error {
	switch {
	case a.wait < 0:
		return usagef("--wait %s: want at least 0s", a.wait)
	case a.dryRun && !a.release || a.yes && !a.release:
		return usagef("--dry-run and --yes go with --release: without it nothing is changed")
	}
	found, err := a.find(ctx)
	if err != nil {
		return err
	}
	if a.release {
		err = a.free(ctx, found)
	}
	if shown := a.show(found); shown != nil {
		return shown
	}
	for _, e := range a.unseen {
		a.warn("%v", e)
	}
	if err == nil {
		err = a.ends(found)
	}
	if err == nil && len(a.unseen) > 0 { // that nothing was found says nothing
		return ends(exitFailed)
	}
	return err
}

// find looks twice: what came or went in between is no finding.
func (a *auditing) find(ctx context.Context) ([]audit.Finding, error) {
	facts, err := a.look(ctx)
	if err != nil {
		return nil, err
	}
	first := audit.Compare(facts)
	if len(first) == 0 {
		return nil, nil
	}
	if facts, err = a.look(ctx); err != nil {
		return nil, err
	}
	return audit.Both(first, audit.Compare(facts)), nil
}

func (a *auditing) ends(found []audit.Finding) error {
	n := map[string]int{}
	for _, f := range found {
		n[f.Status]++
	}
	left := len(found) - n[wasReleased]
	switch {
	case a.dryRun && n[wouldBe] > 0:
		return ends(exitWouldChange)
	case n[hasFailed]+n[notTried] > 0 && n[wasReleased] > 0:
		return &exitError{exitPartly, fmt.Errorf("%d not released", n[hasFailed]+n[notTried])}
	case n[hasFailed]+n[notTried] > 0:
		return fmt.Errorf("%d not released", n[hasFailed]+n[notTried])
	case left > 0:
		return ends(exitFindings)
	}
	return nil
}

func (a *auditing) show(found []audit.Finding) error {
	return printItems(a.tool, "Audit", found, func(w io.Writer) {
		if len(found) == 0 {
			fmt.Fprintln(w, "nothing found")
		}
		for i, f := range found {
			if i > 0 {
				fmt.Fprintln(w)
			}
			rows := [][]string{
				{string(f.Kind), printable(orNone(f.Address)) + " of " + printable(orNone(f.Network)+" ("+f.Delegate+")")},
				{"  container", printable(owner(f))},
				{"  place", printable(f.Place)},
				{"  why", oneLine(f.Why)},
			}
			if f.Mend != "" && f.Status == "" {
				rows = append(rows, []string{"  mend", printable(f.Mend)})
			}
			if f.Status != "" {
				rows = append(rows, []string{"  status", oneLine(f.Status + colon(f.StatusWhy))})
			}
			columns(w, rows)
		}
	})
}

func owner(f audit.Finding) string {
	text := orNone(f.Container)
	if f.IfName != "" {
		text += ", " + f.IfName
	}
	if f.Pod != "" {
		text += ", pod " + f.Pod
	}
	return text
}

func colon(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}
