package inuse

import (
	"bufio"
	"encoding/hex"
	"io"
	"net/netip"
	"os"
	"strings"
)

// files notes the addresses of a process whose namespace is closed to us: what
// /proc says of them, it says to everybody.
func (s *search) files(dir string) {
	for name, read := range map[string]func(io.Reader) ([]netip.Addr, error){"/net/fib_trie": fibTrie, "/net/if_inet6": ifInet6} {
		f, err := os.Open(dir + name)
		if err != nil {
			s.failed(err)
			continue
		}
		addrs, err := read(f)
		s.failed(err)
		_ = f.Close() // it was only read
		for _, a := range addrs {
			s.found[a] = dir + "/ns/net"
		}
	}
}

// fibTrie reads the addresses that the kernel takes for its own:
//
//	|-- 10.9.0.1
//	   /32 host LOCAL
func fibTrie(r io.Reader) (all []netip.Addr, err error) {
	var last string
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if addr, ok := strings.CutPrefix(line, "|-- "); ok {
			last = addr
		} else if line == "/32 host LOCAL" {
			if a, err := netip.ParseAddr(last); err == nil {
				all = append(all, a)
			}
		}
	}
	return all, lines.Err()
}

// ifInet6 reads lines of 32 digits, without colons, and more.
func ifInet6(r io.Reader) (all []netip.Addr, err error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		digits, _, _ := strings.Cut(lines.Text(), " ")
		raw, err := hex.DecodeString(digits)
		if err != nil {
			return all, err
		}
		if a, ok := netip.AddrFromSlice(raw); ok {
			all = append(all, a)
		}
	}
	return all, lines.Err()
}
