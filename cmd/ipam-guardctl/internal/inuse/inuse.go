// Package inuse finds the addresses that interfaces of this machine have, in
// every network namespace there is: those of processes, and those that are
// mounted somewhere or held open by a process, also where no process lives in
// them.
//
// It promises that what it could not look into is an error beside what it has
// seen: an address that isn't there is in use by nobody here only without one.
package inuse

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Addresses returns each address with where it is.
func Addresses() (map[netip.Addr]string, error) {
	s := search{found: map[netip.Addr]string{}, namespaces: map[string]bool{}, mounts: map[string]bool{}}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err == nil {
			s.process("/proc/" + e.Name())
		}
	}
	for _, dir := range s.closed { // last: what others led to needs no looking at
		s.files(dir)
		s.mounted(dir)
	}
	return s.found, s.err
}

type search struct {
	found      map[netip.Addr]string
	namespaces map[string]bool // network namespaces that were looked into: net:[4026531840]
	mounts     map[string]bool // mount namespaces, likewise
	closed     []string        // processes that may do more than we
	err        error           // the first
}

// failed notes what could not be looked into. What is gone meanwhile uses nothing.
func (s *search) failed(err error) {
	if s.err == nil && err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH) {
		s.err = err
	}
}

func (s *search) process(dir string) {
	net, err := os.Readlink(dir + "/ns/net")
	if errors.Is(err, fs.ErrPermission) {
		s.closed = append(s.closed, dir)
		return
	}
	if err != nil {
		s.failed(err)
		return
	}
	if !s.namespaces[net] {
		s.namespaces[net] = true
		s.namespace(dir + "/ns/net")
	}
	if mnt, err := os.Readlink(dir + "/ns/mnt"); err != nil {
		s.failed(err)
	} else if !s.mounts[mnt] {
		s.mounts[mnt] = true
		s.mounted(dir)
	}
	s.open(dir)
}

// open looks into the namespaces that a process holds open.
func (s *search) open(dir string) {
	entries, err := os.ReadDir(dir + "/fd")
	s.failed(err)
	for _, e := range entries {
		path := dir + "/fd/" + e.Name()
		if net, err := os.Readlink(path); err == nil && strings.HasPrefix(net, "net:[") && !s.namespaces[net] {
			s.namespaces[net] = true
			s.namespace(path)
		}
	}
}

// mounted looks into the namespaces that are mounted where a process lives: a
// line is "36 25 0:4 net:[4026532512] /run/netns/cni-1 rw shared:7 - nsfs nsfs rw".
func (s *search) mounted(dir string) {
	f, err := os.Open(dir + "/mountinfo")
	if err != nil {
		s.failed(err)
		return
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 || !strings.HasPrefix(fields[3], "net:[") || s.namespaces[fields[3]] {
			continue
		}
		s.namespaces[fields[3]] = true
		s.namespace(dir + "/root" + unescaped(fields[4]))
	}
	s.failed(lines.Err())
}

// unescaped is a path as it is: blanks are \040 in mountinfo.
func unescaped(path string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path)
}

// namespace notes the addresses of one namespace.
func (s *search) namespace(path string) {
	f, err := os.Open(path)
	if err != nil {
		s.failed(err)
		return
	}
	defer f.Close()
	h, err := netlink.NewHandleAt(netns.NsHandle(f.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		s.failed(fmt.Errorf("%s: %w", path, err))
		return
	}
	defer h.Close()
	addrs, err := h.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		s.failed(fmt.Errorf("%s: %w", path, err))
		return
	}
	for _, a := range addrs {
		if ip, ok := netip.AddrFromSlice(a.IP); ok {
			s.found[ip.Unmap()] = path
		}
	}
}
