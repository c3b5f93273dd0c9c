package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
)

// owner is who holds a lease, and under which network's name it was taken.
type owner struct{ container, ifname, network string }

func (o owner) same(p owner) bool { return o == p }

func (o owner) sameInterface(p owner) bool {
	return o.container == p.container && o.ifname == p.ifname
}

// store is a folder with one file per lease: its name is the address, its
// content the owner.
type store string

func (r *run) leases() store { return store(filepath.Join(r.dir, "leases")) }

type family struct {
	first netip.Addr
	bits  int
}

var (
	v4 = family{netip.MustParseAddr("10.9.0.2"), 16}
	v6 = family{netip.MustParseAddr("fd09::2"), 64}
)

const poolDefault = 60000

// take leases the first free address of a family.
func (r *run) take(f family) error {
	pool := r.conf.own.Pool
	if pool == 0 {
		pool = poolDefault
	}
	addr := f.first
	for range pool {
		ok, err := r.leases().create(addr.String(), r.owner)
		if err != nil {
			return err
		}
		if ok {
			r.taken = append(r.taken, addr.String())
			return nil
		}
		addr = addr.Next()
	}
	return failed("failed to allocate for range 0: no IP addresses available in range set: %s-%s", f.first, addr.Prev())
}

// create makes a lease appear with its content or not at all: whoever is
// killed here leaves no address without an owner.
func (s store) create(addr string, o owner) (bool, error) {
	if err := os.MkdirAll(string(s), 0o777); err != nil {
		return false, err
	}
	tmp, err := os.CreateTemp(filepath.Dir(string(s)), "lease-*")
	if err != nil {
		return false, err
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	defer tmp.Close()
	if _, err := fmt.Fprintf(tmp, "%s\n%s\n%s\n", o.container, o.ifname, o.network); err != nil {
		return false, err
	}
	err = os.Link(tmp.Name(), filepath.Join(string(s), addr))
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	return err == nil, err
}

// held lists the addresses whose owner matches.
func (s store) held(match func(owner) bool) ([]string, error) {
	entries, err := os.ReadDir(string(s))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var addrs []string
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(string(s), e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // freed meanwhile
		}
		if err != nil {
			return nil, err
		}
		f := append(strings.Split(string(data), "\n"), "", "", "")
		if match(owner{f[0], f[1], f[2]}) {
			addrs = append(addrs, e.Name())
		}
	}
	return addrs, nil
}

func (s store) free(match func(owner) bool) error {
	addrs, err := s.held(match)
	for _, a := range addrs {
		rm := os.Remove(filepath.Join(string(s), a))
		if rm != nil && !errors.Is(rm, fs.ErrNotExist) {
			err = rm
		}
	}
	return err
}

func (r *run) allocOnce([]string) error {
	held, err := r.leases().held(r.owner.same)
	if err != nil {
		return err
	}
	if len(held) > 0 {
		return failed("failed to allocate for range 0: %s has been allocated to %s, duplicate allocation is not allowed",
			held[0], r.owner.container)
	}
	return r.take(v4)
}

func (r *run) allocSame([]string) error {
	held, err := r.leases().held(r.owner.same)
	if err != nil {
		return err
	}
	if len(held) > 0 {
		r.taken = append(r.taken, held...)
		return nil
	}
	return r.take(v4)
}

// gc, like host-local, takes a list that is not there for an empty one.
func (r *run) gc([]string) error {
	var valid []owner
	for _, a := range r.conf.Valid {
		valid = append(valid, owner{a.ContainerID, a.IfName, r.owner.network})
	}
	return r.leases().free(func(o owner) bool {
		return o.network == r.owner.network && !slices.Contains(valid, o)
	})
}

func failed(format string, args ...any) error {
	return exit{1, types.NewError(999, fmt.Sprintf(format, args...), "")}
}
