//go:build integration || results

package crio_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"

	"github.com/ipam-guard/ipam-guard/integration/internal/jail"
	"github.com/ipam-guard/ipam-guard/integration/internal/trial"
	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// What CRI-O gives CNI.
const (
	forADD = 5 * time.Minute
	forDEL = time.Minute // for all networks of a pod
	forGC  = 30 * time.Second
)

// crio is its networking: which networks there are, and the library.
type crio struct {
	*jail.Jail
	cni  *libcni.CNIConfig
	nets []*libcni.NetworkConfigList
}

// pod is a sandbox, as far as its network goes.
type pod struct {
	*crio
	name string

	mu      sync.Mutex // CRI-O has one per pod
	state   string
	stopped bool // it had its DEL
}

func (p *pod) netns() string { return "/run/netns/" + p.name }

// attachment is a network's by its place in the list: eth0, eth1, ...
func (p *pod) attachment(i int) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{
		ContainerID: p.name, IfName: "eth" + string(rune('0'+i)), NetNS: p.netns(),
		Args: [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAME", p.name}},
	}
}

// Run is a trial.Pod's: ADD and CHECK of each network, and a DEL of all if one
// of them fails.
func (p *pod) Run(patience time.Duration) trial.Answer {
	return p.call(min(patience, forADD), func(ctx context.Context) error {
		if err := p.makeNetns(); err != nil {
			return err
		}
		p.state = "ready"
		for i, net := range p.nets {
			rt := p.attachment(i)
			_, err := p.cni.AddNetworkList(ctx, net, rt)
			if err == nil {
				err = p.cni.CheckNetworkList(ctx, net, rt)
			}
			if err != nil {
				return errors.Join(err, p.undo())
			}
		}
		return nil
	})
}

// undo forgets the pod, whatever its DEL says.
func (p *pod) undo() error {
	ctx, cancel := context.WithTimeout(context.Background(), forDEL)
	defer cancel()
	err := p.del(ctx)
	p.state = trial.Gone
	return errors.Join(err, p.removeNetns())
}

// Stop is a trial.Pod's: the one DEL, or nothing any more.
func (p *pod) Stop(patience time.Duration) trial.Answer {
	return p.call(min(patience, forDEL), func(ctx context.Context) error {
		if p.state == trial.Gone {
			return nil
		}
		if !p.stopped {
			p.stopped = true
			if err := p.del(ctx); err != nil {
				return err
			}
		}
		p.state = "stopped"
		return p.removeNetns()
	})
}

// Remove is a trial.Pod's.
func (p *pod) Remove(patience time.Duration) trial.Answer {
	if a := p.Stop(patience); a.Err != nil {
		return a
	}
	return p.call(patience, func(context.Context) error { p.state = trial.Gone; return nil })
}

// State is ready, stopped or gone.
func (p *pod) State() string { p.mu.Lock(); defer p.mu.Unlock(); return p.state }

// del asks for a DEL of each network, by the configuration of its ADD, whatever
// the others answer.
func (p *pod) del(ctx context.Context) (err error) {
	for i, net := range p.nets {
		rt := p.attachment(i)
		if text, cached, cacheErr := p.cni.GetNetworkListCachedConfig(net, rt); cacheErr == nil && text != nil {
			list, listErr := libcni.ConfListFromBytes(text)
			if listErr != nil {
				return listErr
			}
			net, rt = list, cached
		}
		err = errors.Join(err, p.cni.DelNetworkList(ctx, net, rt))
	}
	return err
}

func (p *pod) call(patience time.Duration, do func(context.Context) error) trial.Answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	began := time.Now()
	err := do(ctx)
	if err != nil && ctx.Err() != nil {
		err = errors.Join(err, ctx.Err())
	}
	return trial.Answer{Err: err, Took: time.Since(began)}
}

// makeNetns mounts a new network namespace in the jail.
func (p *pod) makeNetns() error {
	_, err := p.Jail.Run(exec.Command("/bin/sh", "-c", "mkdir -p /run/netns && : > "+p.netns()+" && unshare --net="+p.netns()+" true"))
	return err
}

func (p *pod) removeNetns() error {
	if _, err := os.Stat(p.Path(p.netns())); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	_, err := p.Jail.Run(exec.Command("/bin/sh", "-c", "umount "+p.netns()+" && rm "+p.netns()))
	return err
}

// start is what CRI-O does at its start: GC of each network, with those that
// are valid. There are none: the list is null.
func (c *crio) start(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, forGC)
	defer cancel()
	for _, net := range c.nets {
		err = errors.Join(err, c.cni.GCNetworkList(ctx, net, &libcni.GCArgs{ValidAttachments: nil}))
	}
	return err
}

func newMachine(t testing.TB, p trial.Position, nets ...trial.Network) (*trial.Machine, *crio) {
	t.Helper()
	n := guardtest.New(t)
	dirs := p.Plugins(t, n, nets[0].Settings)
	c := &crio{Jail: jail.New(t)}
	for _, net := range nets {
		net.Version = "1.1.0"
		list, err := libcni.ConfListFromBytes(p.Conflist(n, net))
		if err != nil {
			t.Fatal(err)
		}
		c.nets = append(c.nets, list)
	}
	c.cniKeepsIn(n, dirs, "cache")
	return &trial.Machine{
		Node: n, Jail: c.Jail, Position: p, Asks: 4,
		Pod: func(name string) trial.Pod { return c.pod(name) },
	}, c
}

// cniKeepsIn makes the CNI library with that folder of the node for what it keeps.
func (c *crio) cniKeepsIn(n *guardtest.Node, dirs []string, cache string) {
	c.cni = libcni.NewCNIConfigWithCacheDir(dirs, filepath.Join(n.Dir, cache), &inside{Jail: c.Jail, dir: n.Dir})
}

func (c *crio) pod(name string) *pod { return &pod{crio: c, name: name, state: trial.Gone} }
