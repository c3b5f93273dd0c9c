package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ipam-guard/ipam-guard/cmd/ipam-guardctl/internal/audit"
	"github.com/ipam-guard/ipam-guard/cmd/ipam-guardctl/internal/inuse"
	"github.com/ipam-guard/ipam-guard/cmd/ipam-guardctl/internal/store"
	"github.com/ipam-guard/ipam-guard/pkg/chain"
	"github.com/ipam-guard/ipam-guard/pkg/journal"
)

// free frees what is leaked, after it has been shown.
func (a *auditing) free(ctx context.Context, found []audit.Finding) error {
	var chosen []*audit.Finding
	for i := range found {
		f := &found[i]
		switch {
		case f.Kind != audit.Leaked:
		case !f.Releasable(time.Now()):
			f.Status, f.StatusWhy = hasToWait, "it may be of a pod that is starting"
		case a.dryRun:
			f.Status = wouldBe
		default:
			f.Status, f.StatusWhy = notTried, "not asked for"
			chosen = append(chosen, f)
		}
	}
	if len(chosen) == 0 {
		return nil
	}
	if err := a.askToFree(chosen); err != nil {
		return err
	}
	a.freeAll(ctx, chosen)
	return nil
}

func (a *auditing) askToFree(chosen []*audit.Finding) error {
	for _, f := range chosen {
		fmt.Fprintf(a.err, "leaked: %s of %s (%s), container %s\n", printable(f.Address), printable(orNone(f.Network)), f.Delegate, printable(owner(*f)))
	}
	return a.sure(a.yes, fmt.Sprintf("Release %s?", addresses(len(chosen))))
}

func addresses(n int) string {
	if n == 1 {
		return "1 address"
	}
	return fmt.Sprintf("%d addresses", n)
}

func (a *auditing) freeAll(ctx context.Context, chosen []*audit.Finding) {
	a.warn("they are looked at again in %s", lookAgain)
	var all []audit.Candidate
	for _, f := range chosen {
		all = append(all, a.candidate(f))
	}
	r := audit.Releaser{
		Pause: lookAgain, InUse: inuse.Addresses,
		Running: func(ctx context.Context) (audit.Running, error) { return a.list(ctx, a.tool) },
	}
	defer func() {
		for _, tidy := range a.tidy {
			tidy()
		}
	}()
	p := a.progress(len(all))
	defer p.end()
	r.Release(ctx, all, func(i int, err error) {
		p.at(i, 0)
		chosen[i].Status, chosen[i].StatusWhy = statusOf(err)
	})
}

// candidate says how one is released: by its record, or by its network's
// configuration.
func (a *auditing) candidate(f *audit.Finding) audit.Candidate {
	var c audit.Candidate
	if f.Record != nil {
		c = byRecord(a.admin(f.StateDir), *f.Record)
	} else {
		c = audit.Candidate{
			Container: f.Container,
			Hold:      func(ctx context.Context) (*chain.Hold, error) { return a.claim(ctx, f) },
		}
	}
	c.Addresses = append(slices.Clone(c.Addresses), f.Held.Address)
	if f.NoPod {
		c.Still = func() error { return a.podGone(f.Pod) }
	}
	if f.Delegate == hostLocal {
		later := c.Still
		c.Still = func() error {
			if err := sameReservation(f.Held); err != nil || later == nil {
				return err
			}
			return later()
		}
		c.Released = func() error { return reservationGone(f.Held) }
	}
	return c
}

// podGone asks all clusters anew whose pools were read.
func (a *auditing) podGone(pod string) error {
	for kubeconfig := range a.clusters {
		if err := store.PodGone(context.Background(), kubeconfig, pod); err != nil {
			return fmt.Errorf("%w: %w", audit.ErrLives, err)
		}
	}
	return nil
}

func (a *auditing) admin(dir string) chain.Admin {
	admin := a.tool.admin(a.nodeFile, dir)
	admin.Wait, admin.Who, admin.Why = a.wait, a.who(), "audit"
	return admin
}

// claim takes the key of an address without a record.
func (a *auditing) claim(ctx context.Context, f *audit.Finding) (*chain.Hold, error) {
	n := audit.Find(a.networks(), f.Held)
	if n == nil {
		return nil, errors.New("no configuration here is of its network: no DEL can be made")
	}
	facts := n.Facts
	if namespace, name, ok := strings.Cut(f.Pod, "/"); ok {
		facts.Args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=" + namespace + ";K8S_POD_NAME=" + name + ";K8S_POD_INFRA_CONTAINER_ID=" + f.Container
	}
	ifname := f.IfName
	if ifname == "" {
		ifname = "eth0" // older reservations don't say; the DEL goes by the container then
	}
	key := journal.Key{Network: n.Name, Container: f.Container, IfName: ifname, Delegate: n.Delegate}
	dir := chain.ViewOf(n.Delegate, a.nodeFile, facts.Guard).Settings.StateDir
	admin := a.admin(dir)
	a.tidy = append(a.tidy, admin.Tidy())
	return admin.Claim(ctx, key, facts)
}

// errChanged says that it is another's now.
var errChanged = fmt.Errorf("%w: the reservation is another one now", audit.ErrLives)

func sameReservation(h store.Held) error {
	now, err := store.Reservation(h.Place, h.Network)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return chain.ErrNoRecord
	case err != nil:
		return err
	case now != h:
		return errChanged
	}
	return nil
}

// reservationGone looks at what the delegate has done: host-local says success
// where it could not remove a file.
func reservationGone(h store.Held) error {
	if _, err := os.Lstat(h.Place); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("its DEL went well, but %s is still there", h.Place)
	}
	return nil
}

// inUse are the addresses of this node's interfaces. Where not all can be seen,
// an address of another runtime's container may look leaked.
func (a *auditing) inUse() map[netip.Addr]string {
	found, err := inuse.Addresses()
	if err != nil {
		a.see(fmt.Errorf("not all network namespaces can be looked into, so what podman runs may look leaked: %w", err))
	}
	return found
}
