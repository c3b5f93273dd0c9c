package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ipam-guard/ipam-guard/internal/atomicfile"
	"github.com/ipam-guard/ipam-guard/pkg/chain"
	"github.com/ipam-guard/ipam-guard/pkg/conflist"
	"github.com/ipam-guard/ipam-guard/pkg/journal"
)

type uninstallOptions struct {
	cniPath   string
	nodeFile  string
	stateDirs []string
	caches    []string
	abandon   bool
	dryRun    bool
}

const uninstallHelp = `uninstall takes the guard off a node, in this order:

 1. Every configuration in FOLDER that names the guard is unwrapped.
 2. What is owed is released from the guard's records. Records of attachments
    that are gone for ten minutes are released too; those that live stay.
 3. What could not be released is listed. --abandon gives it up: those addresses
    stay taken.
 4. Guards under the name of an IPAM plugin (install --shadow) are removed, once
    nothing is owed by them.
 5. ipam-guard is removed once nothing names it any more: no record, and no cached
    result of a runtime (CRI-O and podman send a DEL with the configuration of the
    ADD). Until then it stays, serves those, and the exit status is 5.

The same command again, later, finishes the job. Unwrap
NetworkAttachmentDefinitions first: they are not on the node. The node's file, the
log and the empty folders are left to you.`

func uninstallCommand(t *tool) *cobra.Command {
	var o uninstallOptions
	cmd := &cobra.Command{
		Use:   "uninstall FOLDER",
		Short: "The configuration, then what is owed, then the binary: unguard a node",
		Long:  uninstallHelp,
		Example: `  ipam-guardctl uninstall --dry-run /etc/cni/net.d
  ipam-guardctl uninstall /etc/cni/net.d
  ipam-guardctl uninstall --abandon /etc/cni/net.d`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return (&leaving{tool: t, uninstallOptions: o, boot: journal.Here().Boot}).run(cmd.Context(), args[0])
		},
	}
	f := cmd.Flags()
	cniPathFlag(cmd, &o.cniPath)
	f.StringVar(&o.nodeFile, "node-file", nodeFile, "the settings of the node")
	f.StringArrayVar(&o.stateDirs, "state-dir", nil, "another folder of records, beside those that the settings name")
	f.StringArrayVar(&o.caches, "cache-dir", []string{"/var/lib/cni/results", "/var/lib/cni/cache/results"}, "where runtimes keep the results of ADDs")
	f.BoolVar(&o.abandon, "abandon", false, "give up what could not be released")
	f.BoolVar(&o.dryRun, "dry-run", false, "show what would be done, change nothing; exit status 4 if there is something")
	return cmd
}

// leaving is one uninstall.
type leaving struct {
	*tool
	uninstallOptions
	steps []step
	dirs  []string // of records
	boot  string   // of the node
	holds []string // why the binary stays
	would bool     // something was done already, or a dry run found something to do
}

func (l *leaving) run(ctx context.Context, dir string) error {
	paths, err := folders(l.cniPath)
	if err != nil {
		return err
	}
	own, shadows, err := guards(paths)
	if err != nil {
		return err
	}
	if err := l.configurations(dir); err != nil {
		_ = l.showSteps("Uninstall", l.steps)
		if len(l.steps) > 0 {
			err = &exitError{exitPartly, err}
		}
		return err
	}
	if l.would && !l.dryRun { // a configuration was unwrapped
		if n := settle(ctx, foldersOf(own, shadows)); n > 0 {
			l.holds = append(l.holds, count(n, "call")+" for pods that began before")
		}
	}
	owed := l.records(ctx, false)
	l.removeShadows(shadows, owed)
	if len(shadows) > 0 && !l.dryRun { // what they were at while they were there
		l.records(ctx, true)
	}
	l.remove(own)
	l.removeFolders()
	if err := l.showSteps("Uninstall", l.steps); err != nil {
		return err
	}
	if len(l.steps) == 0 {
		l.warn("nothing to do: no configuration in %s names the guard, and it is in none of %s", dir, l.cniPath)
	}
	switch {
	case l.dryRun && l.would:
		return ends(exitWouldChange)
	case len(l.holds) > 0:
		return &exitError{exitPartly, fmt.Errorf("not done yet: %s; give the same command again later", strings.Join(l.holds, ", "))}
	}
	return nil
}

func foldersOf(files ...[]string) (dirs []string) {
	for _, path := range slices.Concat(files...) {
		dirs = append(dirs, filepath.Dir(path))
	}
	return dirs
}

func (l *leaving) step(what, name, status string) {
	l.steps = append(l.steps, step{What: what, Name: name, Status: status})
}

// configurations unwraps what a runtime would read.
func (l *leaving) configurations(dir string) error {
	f, err := readFolder(dir)
	if err != nil && !errors.Is(err, errNoConf) { // without one there is nothing to unwrap
		return err
	}
	list, err := f.guarded()
	if err != nil {
		return err
	}
	results, err := cachedResults(l.caches)
	if err != nil {
		return err
	}
	var confs []conflist.Conf
	for _, s := range list {
		confs = append(confs, s.conf)
	}
	for _, r := range results {
		confs = append(confs, r.conf)
	}
	l.dirs = stateDirs(l.nodeFile, l.stateDirs, confs...)
	for _, s := range list {
		c, err := unwrapping(s)
		if err == nil && !l.dryRun {
			err = l.write(c)
		}
		if err != nil {
			return err
		}
		item := c.unwrapped(l.dryRun)
		l.steps = append(l.steps, step{"configuration", item.File, strings.Join(append([]string{item.Status}, item.Notes...), "; "), item.Diff})
		l.would = true
	}
	if n := len(results); n > 0 {
		l.holds = append(l.holds, count(n, "cached result")+" of running containers")
		for _, r := range results {
			l.step("cached result", r.path, "names the guard")
		}
	}
	return nil
}

// records releases what is owed, and returns for each delegate type how many
// records still are. again: only what came since.
func (l *leaving) records(ctx context.Context, again bool) map[string]int {
	owed := map[string]int{}
	kept := 0
	for _, dir := range l.dirs {
		a := l.admin(dir)
		for _, r := range a.Records() {
			status, left := l.record(ctx, a, r)
			if r.Pending() && left || r.Busy {
				owed[r.Delegate]++
			}
			if left {
				kept++
			}
			if !again || !left {
				l.step("record", r.Key.String(), status)
			}
		}
	}
	if kept > 0 && !again {
		l.holds = append(l.holds, count(kept, "record"))
	}
	return owed
}

func (l *leaving) admin(dir string) chain.Admin {
	a := l.tool.admin(l.nodeFile, dir)
	a.Note, a.Wait, a.Who, a.Why = !l.dryRun, 10*time.Second, l.who(), "uninstall"
	return a
}

// record releases one record if that may be, and says what became of it and
// whether it is left.
func (l *leaving) record(ctx context.Context, a chain.Admin, r chain.Held) (status string, left bool) {
	switch {
	case r.Busy:
		return "another process is at work on it", true
	case r.Unreadable && l.abandon:
		return "can't be read, or is of a newer version: abandoned where it is", false
	case r.Unreadable:
		return "can't be read, or is of a newer version: would be abandoned", true
	case !r.Releasable && !r.Pending() && !r.NetnsGone:
		return "lives", true
	case !r.Releasable && !l.abandon:
		return l.notYet(r), true
	case l.dryRun && r.Releasable:
		l.would = true
		return "owed (" + string(r.State) + "): would be released", false
	case l.dryRun:
		l.would = true
		return "would be abandoned: " + l.notYet(r), false
	}
	err := chain.ErrNotYet
	if r.Releasable {
		err = a.Release(ctx, r.Key, false)
	}
	if err == nil {
		return "released", false
	}
	if !l.abandon {
		return "not released: " + err.Error() + "; --abandon would give it up", true
	}
	if gone := a.Forget(ctx, r.Key); gone != nil {
		return gone.Error(), true
	}
	return "abandoned: its address may stay taken: " + err.Error(), false
}

// notYet says why a record that is owed can't be released now, and when.
func (l *leaving) notYet(r chain.Held) string {
	switch {
	case !r.NetnsGone:
		return "owed, and may be in use as long as its network namespace is there"
	case r.GoneSince == 0 || r.Boot != l.boot:
		return "its network namespace is gone: may be released ten minutes after a call that isn't a dry run has seen that"
	}
	in := max(0, 10*time.Minute-time.Duration(journal.Uptime()-r.GoneSince)*time.Millisecond)
	return "its network namespace is gone: may be released in " + in.Round(time.Second).String()
}

func (l *leaving) removeShadows(shadows []string, owed map[string]int) {
	for _, path := range shadows {
		if n := owed[filepath.Base(path)]; n > 0 {
			l.step("binary", path, "stays: "+count(n, "record")+" owed by it")
			l.holds = append(l.holds, path)
			continue
		}
		l.removeFile(path)
	}
}

// remove removes the guard itself, once nothing names it.
func (l *leaving) remove(own []string) {
	for _, path := range own {
		if len(l.holds) > 0 {
			l.step("binary", path, "stays, for "+strings.Join(l.holds, ", "))
			continue
		}
		l.removeFile(path)
	}
}

// removeFolders removes what records leave of their folders, once the guard is
// gone and none is left.
func (l *leaving) removeFolders() {
	if l.dryRun || len(l.holds) > 0 {
		return
	}
	for _, dir := range l.dirs {
		if left := l.admin(dir).Records(); len(left) > 0 {
			continue
		}
		queues, _ := filepath.Glob(filepath.Join(dir, "queue", "*"))
		for _, path := range queues {
			_ = os.Remove(filepath.Join(path, "cursor"))
			_ = os.Remove(path) // unless it isn't empty, here and below
		}
		for _, name := range []string{"queue", "records", ""} {
			_ = os.Remove(filepath.Join(dir, name))
		}
	}
}

func (l *leaving) removeFile(path string) {
	l.would = true
	if l.dryRun {
		l.step("binary", path, "would be removed")
		return
	}
	if err := atomicfile.Remove(path); err != nil {
		l.step("binary", path, err.Error())
		l.holds = append(l.holds, path+" could not be removed")
		return
	}
	l.step("binary", path, "removed")
}
