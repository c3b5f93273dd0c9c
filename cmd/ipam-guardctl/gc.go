package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/ipam-guard/ipam-guard/cmd/ipam-guardctl/internal/audit"
	"github.com/ipam-guard/ipam-guard/cmd/ipam-guardctl/internal/inuse"
	"github.com/ipam-guard/ipam-guard/cmd/ipam-guardctl/internal/store"
	"github.com/ipam-guard/ipam-guard/pkg/chain"
	"github.com/ipam-guard/ipam-guard/pkg/journal"
)

type gcOptions struct {
	recordOptions
	runningOptions
	dryRun bool
	wait   time.Duration
}

// lookAgain is how long lies between the two looks at what nobody seems to use.
// containerd lists a pod only when its ADD is over.
const lookAgain = time.Minute

const gcHelp = `gc does what CRI-O does when it starts, for runtimes that never call a GC: it asks
the runtime what there is, and releases by the guard's records what is not.

 - What must be released (a DEL that failed, an ADD that was killed) is released as
   replay does it.
 - An attachment is released if no runtime lists its container and its network
   namespace is gone for ten minutes, and if that is still so a minute later; for
   that minute its record is locked. gc notes since when a namespace is gone, so
   the same command does the rest later.
 - All else is left: what a runtime lists, in whatever state; what has a network
   namespace, as containers of podman have; networks with "disableGC" in their
   configuration.

It goes by records alone: addresses without one are for audit. A timer that calls
it, say each hour, is all that a node with containerd needs.

Exit status: 0 all that may be released is, 1 none was, 5 some were not, 4 with
--dry-run: something would be.`

func gcCommand(t *tool) *cobra.Command {
	var o gcOptions
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Release what the records have and the runtime doesn't",
		Long:  gcHelp,
		Example: `  ipam-guardctl gc --dry-run
  ipam-guardctl gc
  ipam-guardctl gc --cri /run/k3s/containerd/containerd.sock
  podman ps -aq --no-trunc | ipam-guardctl gc --cri /run/crio/crio.sock --containers -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return (&collecting{tool: t, gcOptions: o}).run(cmd.Context())
		},
	}
	o.recordOptions.flags(cmd)
	o.runningOptions.flags(cmd)
	f := cmd.Flags()
	f.BoolVar(&o.dryRun, "dry-run", false, "show what would be released, change nothing; exit status 4 if there is something")
	f.DurationVar(&o.wait, "wait", 10*time.Second, "how long to wait, for each record, for who is at work")
	return cmd
}

// collecting is one gc.
type collecting struct {
	*tool
	gcOptions
	disabled map[string]string // network -> the file that says disableGC
	running  audit.Running
	items    []outcome
	gone     []held // that nobody seems to use, to be looked at again
}

func (c *collecting) run(ctx context.Context) error {
	if c.wait < 0 {
		return usagef("--wait %s: want at least 0s", c.wait)
	}
	var err error
	if c.disabled, err = gcDisabled(c.confDir); err != nil {
		return err
	}
	if c.running, err = c.list(ctx, c.tool); err != nil {
		return err
	}
	all, unseen := c.records(c.recordOptions, !c.dryRun)
	for _, h := range all {
		c.one(ctx, h)
	}
	c.again(ctx)
	if err := c.showOutcomes("GC", "all that is recorded lives", c.items); err != nil {
		return err
	}
	return firstOf(unseen, gcEnds(c.items, c.dryRun))
}

func (c *collecting) note(h held, status, why string) {
	c.items = append(c.items, outcome{h.name(), status, why})
}

// one decides about a record by the first look.
func (c *collecting) one(ctx context.Context, h held) {
	file, disabled := c.disabled[h.Network]
	lists := c.running.Has(h.Container)
	switch {
	case h.Unreadable:
		c.note(h, wasLeft, h.next())
	case h.State == journal.Attached && (lists || !h.NetnsGone) || h.Busy: // lives
	case disabled:
		c.note(h, wasLeft, file+" says disableGC")
	case ctx.Err() != nil:
		c.note(h, notTried, "interrupted")
	case !h.Releasable:
		c.note(h, hasToWait, h.next())
	case c.dryRun:
		c.note(h, wouldBe, "")
	case h.State == journal.Attached:
		c.gone = append(c.gone, h)
	default:
		c.became(h, c.admin(h).Release(ctx, h.Key, false))
	}
}

func (c *collecting) admin(h held) chain.Admin {
	a := c.tool.admin(c.nodeFile, h.dir)
	a.Wait, a.Who, a.Why = c.wait, c.who(), "gc"
	return a
}

// again looks again at what nobody seems to use, and releases it.
func (c *collecting) again(ctx context.Context) {
	if len(c.gone) == 0 {
		return
	}
	c.warn("%s whose containers are gone: released if they still are in %s", count(len(c.gone), "attachment"), lookAgain)
	var all []audit.Candidate
	for _, h := range c.gone {
		all = append(all, byRecord(c.admin(h), *h.Held))
	}
	r := audit.Releaser{
		Pause: lookAgain, InUse: inuse.Addresses,
		Running: func(ctx context.Context) (audit.Running, error) { return c.list(ctx, c.tool) },
	}
	p := c.progress(len(all))
	defer p.end()
	r.Release(ctx, all, func(i int, err error) {
		p.at(i, 0)
		c.became(c.gone[i], err)
	})
}

// byRecord is something that is released by its record.
func byRecord(a chain.Admin, h chain.Held) audit.Candidate {
	return audit.Candidate{
		Container: h.Container, Addresses: audit.AddressesOf(h.Result),
		Hold:  func(ctx context.Context) (*chain.Hold, error) { return a.Hold(ctx, h.Key) },
		Still: func() error { return nothingLater(h) },
	}
}

// nothingLater says that an attachment was made anew past its record: by a
// container that podman has started again while no guard was in its network's
// configuration, or one with a record of another delegate type. host-local's DEL
// goes by container and interface, and would free what that has now.
func nothingLater(h chain.Held) error {
	dir, network, ok := hostLocalOf(h.Netconf)
	if !ok {
		return nil
	}
	held, err := store.HostLocal(dir, network)
	if err != nil {
		return rights(err)
	}
	held = slices.DeleteFunc(held, func(s store.Held) bool {
		return s.Container != h.Container || s.IfName != "" && s.IfName != h.IfName
	})
	if len(held) == 0 {
		return nil
	}
	used, err := inuse.Addresses()
	if err != nil {
		return err
	}
	for _, s := range held {
		if where, is := used[s.Address]; is {
			return fmt.Errorf("%w: %s has %s, which is held for its container, too", audit.ErrLives, where, s.Address)
		}
	}
	return nil
}

// hostLocalOf is where host-local keeps the addresses of a netconf, if it is the
// one who does.
func hostLocalOf(netconf []byte) (dir, network string, ok bool) {
	var conf struct {
		Name string   `json:"name"`
		IPAM ipamConf `json:"ipam"`
	}
	if json.Unmarshal(netconf, &conf) != nil || conf.IPAM.Type != hostLocal {
		return "", "", false
	}
	return cmp.Or(conf.IPAM.DataDir, store.HostLocalDir), conf.Name, true
}

// became notes what a release came to.
func (c *collecting) became(h held, err error) {
	status, why := statusOf(err)
	c.note(h, status, why)
}

func gcEnds(items []outcome, dryRun bool) error {
	n := map[string]int{}
	for _, item := range items {
		n[item.Status]++
	}
	left := n[hasFailed] + n[notTried]
	switch {
	case dryRun && n[wouldBe] > 0:
		return ends(exitWouldChange)
	case left == 0:
		return nil
	case n[wasReleased] > 0:
		return &exitError{exitPartly, fmt.Errorf("%d of %d were not released", left, left+n[wasReleased])}
	}
	return fmt.Errorf("%s not released", count(left, "record"))
}
