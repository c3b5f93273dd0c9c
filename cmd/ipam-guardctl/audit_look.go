package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ipam-guard/ipam-guard/cmd/ipam-guardctl/internal/audit"
	"github.com/ipam-guard/ipam-guard/cmd/ipam-guardctl/internal/store"
	"github.com/ipam-guard/ipam-guard/pkg/chain"
	"github.com/ipam-guard/ipam-guard/pkg/conflist"
	"github.com/ipam-guard/ipam-guard/pkg/journal"
)

// The delegates whose stores can be read.
const (
	hostLocal   = "host-local"
	whereabouts = "whereabouts"
)

// delegateStore is a network, and where its delegate keeps its addresses.
type delegateStore struct {
	audit.Network
	dataDir    string // host-local's
	kubeconfig string // whereabouts'
	read       bool
}

// networks are those whose stores were read.
func (a *auditing) networks() []audit.Network {
	var all []audit.Network
	for _, s := range a.stores {
		if s.read {
			all = append(all, s.Network)
		}
	}
	return all
}

// see notes what could not be looked at, once.
func (a *auditing) see(err error) {
	if err != nil && !slices.ContainsFunc(a.unseen, func(e error) bool { return e.Error() == err.Error() }) {
		a.unseen = append(a.unseen, err)
	}
}

// look gathers what is compared.
func (a *auditing) look(ctx context.Context) (f audit.Facts, err error) {
	a.stores = nil
	records, unseen := a.records(a.recordOptions, a.release && !a.dryRun)
	if unseen != nil { // what has a record must not look as if it had none
		return f, unseen
	}
	f.Records = make([]chain.Held, 0, len(records))
	dirs := map[journal.Key]string{}
	for _, h := range records {
		f.Records = append(f.Records, *h.Held)
		dirs[h.Key] = h.dir
	}
	f.StateDirs = dirs
	a.configured()
	a.recorded(f.Records)
	if f.Held, err = a.hostLocal(); err != nil {
		return f, err
	}
	pools, pods := a.whereabouts(ctx)
	f.Held, f.Pods = append(f.Held, pools...), pods
	if f.Running, err = a.list(ctx, a.tool); err != nil {
		return f, err
	}
	f.InUse, f.Networks, f.Now = a.inUse(), a.networks(), time.Now()
	return f, nil
}

// configured are the networks of the conf folder.
func (a *auditing) configured() {
	folder, err := readFolder(a.confDir)
	if err != nil && !errors.Is(err, errNoConf) {
		a.see(err)
	}
	for _, file := range folder.files {
		if file.edited != nil {
			a.see(file.edited)
			continue
		}
		a.ofConf(file.conf)
	}
}

// ofConf takes over each plugin as its delegate gets it: without the guard, with
// the name and version of the list.
func (a *auditing) ofConf(guarded conflist.Conf) {
	doc, _, err := guarded.Unwrap()
	if err != nil {
		a.see(err)
		return
	}
	plain, err := conflist.Read(doc)
	if err != nil || len(plain.Plugins) != len(guarded.Plugins) {
		a.see(err)
		return
	}
	names := conflist.AppendString([]byte(`{"name":`), plain.Name)
	names = append(conflist.AppendString(append(names, `,"cniVersion":`...), plain.Version), '}')
	over, err := conflist.Parse(names)
	if err != nil {
		a.see(err)
		return
	}
	for i, p := range plain.Plugins {
		guard := guarded.Plugins[i].IPAM.Guard
		if guard.Doc == nil {
			guard = guarded.Plugins[i].Guard
		}
		facts := journal.Facts{Netconf: p.Object.Overlay(over, over.Members), Path: a.cniPath}
		if guard.Doc != nil {
			facts.Guard = guard.Value("guard")
		}
		a.ofNetconf(facts)
	}
}

// recorded are the networks of records: those of NetworkAttachmentDefinitions are
// in no file.
func (a *auditing) recorded(records []chain.Held) {
	seen := map[string]bool{}
	for _, r := range records {
		if r.Unreadable || seen[string(r.Netconf)] {
			continue
		}
		seen[string(r.Netconf)] = true
		a.ofNetconf(journal.Facts{Netconf: r.Netconf, Guard: r.Guard, Path: r.Path})
	}
}

// ipamConf is what the two delegates' objects have.
type ipamConf struct {
	Type    string `json:"type"`
	DataDir string `json:"dataDir"`
	Subnet  string `json:"subnet"`
	Ranges  [][]struct {
		Subnet string `json:"subnet"`
	} `json:"ranges"`
	Range    string `json:"range"`
	IPRanges []struct {
		Range string `json:"range"`
	} `json:"ipRanges"`
	Kubernetes struct {
		Kubeconfig string `json:"kubeconfig"`
	} `json:"kubernetes"`
}

func (a *auditing) ofNetconf(facts journal.Facts) {
	var conf struct {
		Name         string          `json:"name"`
		Capabilities map[string]bool `json:"capabilities"`
		IPAM         ipamConf        `json:"ipam"`
	}
	if json.Unmarshal(facts.Netconf, &conf) != nil || conf.IPAM.Type != hostLocal && conf.IPAM.Type != whereabouts {
		return
	}
	s := delegateStore{
		Network: audit.Network{Name: conf.Name, Delegate: conf.IPAM.Type, Facts: facts},
		dataDir: conf.IPAM.DataDir, kubeconfig: conf.IPAM.Kubernetes.Kubeconfig,
	}
	if s.dataDir == "" {
		s.dataDir = store.HostLocalDir
	}
	if !conf.Capabilities["ipRanges"] { // else the runtime says more
		s.Ranges, s.Sets = conf.IPAM.ranges()
	}
	same := func(o delegateStore) bool {
		return o.Name == s.Name && o.Delegate == s.Delegate && o.dataDir == s.dataDir && o.kubeconfig == s.kubeconfig && slices.Equal(o.Ranges, s.Ranges)
	}
	if !slices.ContainsFunc(a.stores, same) {
		a.stores = append(a.stores, s)
	}
}

// ranges are the networks of an ipam object's ranges, and how many addresses an
// attachment gets.
func (c ipamConf) ranges() (all []netip.Prefix, sets int) {
	texts := []string{c.Subnet, c.Range}
	for _, set := range c.Ranges {
		for _, r := range set {
			texts = append(texts, r.Subnet)
		}
	}
	for _, r := range c.IPRanges {
		texts = append(texts, r.Range)
	}
	for _, text := range texts {
		_, after, ranged := strings.Cut(text, "-") // 10.0.0.5-10.0.0.9/24
		if ranged {
			text = after
		}
		if p, err := netip.ParsePrefix(text); err == nil {
			all = append(all, p.Masked())
		}
	}
	if c.Type == hostLocal {
		sets = len(c.Ranges)
		if c.Subnet != "" {
			sets++
		}
	}
	return all, sets
}

// hostLocal reads host-local's stores: of the networks that are known, and what
// else is in those folders.
func (a *auditing) hostLocal() ([]store.Held, error) {
	dirs := slices.Clone(a.dataDirs)
	for i, s := range a.stores {
		if s.Delegate == hostLocal {
			a.stores[i].read = true
			dirs = append(dirs, s.dataDir)
		}
	}
	slices.Sort(dirs)
	var all []store.Held
	for _, dir := range slices.Compact(dirs) {
		names, err := store.HostLocalNetworks(dir)
		if err != nil {
			return nil, rights(err)
		}
		for _, name := range names {
			some, err := store.HostLocal(dir, name)
			if err != nil {
				return nil, rights(err)
			}
			all = append(all, some...)
		}
	}
	return all, nil
}

func rights(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("what host-local holds can't be seen: %w: run it as root", err)
	}
	return err
}
