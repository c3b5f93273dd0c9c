package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/ipam-guard/ipam-guard/pkg/journal"
)

type replayOptions struct {
	recordOptions
	network string
	all     bool
	force   bool
	yes     bool
	dryRun  bool
	wait    time.Duration
}

const replayHelp = `replay releases now what records say must be released, as calls for other pods
do later: the delegate's DEL with the configuration of the ADD, settings of now,
under the host lock. How long it waits for the lock, and for who is at work on a
record, is said by --wait.

 RECORD...        these; named as pending names them
 --network NAME   all of a network that may be released
 --all            all of the node that may be released

What may still be in use is left: an attachment whose network namespace is there,
or gone for less than ten minutes. replay notes since when it is gone, so the same
command does the rest later. --force releases a RECORD whatever lives, after it
has shown that: then two pods may get one address.

Exit status: 0 all that may be released is, 1 none was released, 5 some were not,
4 with --dry-run: something would be.`

func replayCommand(t *tool) *cobra.Command {
	var o replayOptions
	cmd := &cobra.Command{
		Use:   "replay RECORD...",
		Short: "Release now what must be released",
		Long:  replayHelp,
		Example: `  ipam-guardctl replay --all --dry-run
  ipam-guardctl replay --all
  ipam-guardctl replay --network pods
  ipam-guardctl replay 3f2a91 --force`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(args); err != nil {
				return err
			}
			return t.replay(cmd.Context(), o, args)
		},
	}
	o.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.network, "network", "", "all of the network of this `NAME`")
	f.BoolVar(&o.all, "all", false, "all of the node")
	f.BoolVar(&o.force, "force", false, "whatever lives; only for records that are named")
	f.BoolVar(&o.yes, "yes", false, "with --force: don't ask")
	f.BoolVar(&o.dryRun, "dry-run", false, "show what would be released, change nothing; exit status 4 if there is something")
	f.DurationVar(&o.wait, "wait", 10*time.Second, "how long to wait, for each record, for who is at work")
	return cmd
}

func (o *replayOptions) check(args []string) error {
	ways := 0
	for _, given := range []bool{len(args) > 0, o.network != "", o.all} {
		if given {
			ways++
		}
	}
	switch {
	case ways != 1:
		return usagef("want one of RECORD..., --network NAME and --all")
	case o.force && len(args) == 0:
		return usagef("--force is for records that are named: what lives is given up one by one")
	case o.wait < 0:
		return usagef("--wait %s: want at least 0s", o.wait)
	}
	return nil
}

func (t *tool) replay(ctx context.Context, o replayOptions, args []string) error {
	all, unseen := t.records(o.recordOptions, !o.dryRun, args...)
	chosen, err := o.choose(all, args)
	if err != nil {
		return firstOf(unseen, err)
	}
	if err := t.showLiving(o, chosen); err != nil {
		return err
	}
	items := t.replayAll(ctx, o, chosen)
	if err := t.showOutcomes("Replay", "nothing is pending", items); err != nil {
		return err
	}
	return firstOf(unseen, o.ends(items, len(args) > 0))
}

func (o replayOptions) choose(all []held, args []string) ([]held, error) {
	var chosen []held
	for _, arg := range args {
		h, err := find(all, arg)
		if err != nil {
			return nil, err
		}
		chosen = append(chosen, h)
	}
	for _, h := range all {
		if h.matters() && (o.all || o.network != "" && h.Network == o.network) {
			chosen = append(chosen, h)
		}
	}
	return chosen, nil
}

// showLiving shows what --force would take from under somebody, and asks.
func (t *tool) showLiving(o replayOptions, chosen []held) error {
	living := 0
	for _, h := range chosen {
		if !o.force || h.Releasable || h.Unreadable || h.Busy {
			continue
		}
		living++
		for _, line := range h.whatLives() {
			fmt.Fprintln(t.err, line)
		}
	}
	if living == 0 || o.dryRun {
		return nil
	}
	return t.sure(o.yes, fmt.Sprintf("Release %s that may be in use?", count(living, "record")))
}

func (t *tool) replayAll(ctx context.Context, o replayOptions, chosen []held) []outcome {
	var items []outcome
	failed := 0
	p := t.progress(len(chosen))
	defer p.end()
	for i, h := range chosen {
		p.at(i, failed)
		item := t.replayOne(ctx, o, h)
		if item.Status == hasFailed {
			failed++
		}
		items = append(items, item)
	}
	return items
}

func (t *tool) replayOne(ctx context.Context, o replayOptions, h held) outcome {
	item := outcome{Name: h.name()}
	set := func(status, why string) outcome {
		item.Status, item.Why = status, why
		return item
	}
	switch {
	case ctx.Err() != nil:
		return set(notTried, "interrupted")
	case errors.Is(h.Problem, journal.ErrNewer):
		return set(hasFailed, h.next()+": use the newer ipam-guardctl")
	case h.Unreadable:
		return set(hasFailed, h.next()+": ipam-guardctl forget gives it up")
	case !h.Releasable && !h.Busy && !o.force:
		return set(hasToWait, h.next())
	case o.dryRun:
		return set(wouldBe, "")
	}
	a := t.admin(o.nodeFile, h.dir)
	a.Wait, a.Who = o.wait, t.who()
	return set(statusOf(a.Release(ctx, h.Key, o.force)))
}

// ends says how a replay ended. Of what was named, what has to wait counts as not
// done.
func (o replayOptions) ends(items []outcome, named bool) error {
	count := map[string]int{}
	for _, item := range items {
		count[item.Status]++
	}
	bad := count[hasFailed] + count[notTried]
	if named {
		bad += count[hasToWait]
	}
	status := exitFailed
	switch {
	case o.dryRun && count[wouldBe] > 0:
		return ends(exitWouldChange)
	case bad == 0:
		return nil
	case count[wasReleased] > 0:
		status = exitPartly
	}
	return &exitError{status, fmt.Errorf("%d of %d not released: %s", len(items)-count[wasReleased], len(items), o.left(count))}
}

// left says of what was not released why.
func (o replayOptions) left(count map[string]int) string {
	var parts []string
	for _, status := range []string{hasFailed, notTried, hasToWait} {
		if n := count[status]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, status))
		}
	}
	text := joined(parts)
	if count[hasToWait] > 0 && !o.force {
		text += "; what may be in use is released only with --force"
	}
	return text
}

// whatLives are lines about what uses, or may use, a record's address.
func (h held) whatLives() []string {
	lines := []string{
		h.name() + " is " + h.state() + ": " + h.next(),
		"  addresses:         " + orNone(printable(joined(h.addresses()))),
		"  network namespace: " + orNone(printable(h.Netns.Path)) + gone(h.NetnsGone),
	}
	if users := inNetns(h.Netns); len(users) > 0 {
		lines = append(lines, "  processes in it:   "+joined(users))
	} else if h.State == journal.Attached {
		lines = append(lines, "  processes in it:   none seen from here")
	}
	return lines
}
