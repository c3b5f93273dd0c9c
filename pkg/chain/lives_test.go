package chain_test

import (
	"encoding/hex"
	"net/netip"
	"slices"
	"testing"

	"github.com/ipam-guard/ipam-guard/pkg/chain"
)

// A result's addresses, of every version of results, are looked for as the kernel
// writes them.
func TestLocalLines(t *testing.T) {
	for _, c := range []struct {
		result string
		want   []string
	}{
		{`{"ips": [{"address": "10.9.0.2/16"}, {"address": "10.9.0.20/16"}]}`, []string{"|-- 10.9.0.2\n", "|-- 10.9.0.20\n"}},
		{`{"ip4": {"ip": "10.9.0.2/16"}, "ip6": {"ip": "fd00::2/64"}}`, []string{"|-- 10.9.0.2\n", six("fd00::2")}},
		{`{"ips": [{"address": "2001:DB8:0:1:2:3:4:5/64"}]}`, []string{six("2001:db8:0:1:2:3:4:5")}},
		{`{"ips": [{"address": "::1/128"}, {"address": "fd00::/128"}, {"address": "1::2:3/64"}]}`, []string{six("::1"), six("fd00::"), six("1::2:3")}},
		{`{"ips": []}`, nil},
		{`{}`, nil},
		{`garbage`, nil},
	} {
		if have := chain.LocalLines([]byte(c.result)); !slices.Equal(have, c.want) {
			t.Errorf("%s: %q, want %q", c.result, have, c.want)
		}
	}
}

// six is the beginning of an address' line in if_inet6, by the standard library.
func six(addr string) string {
	a := netip.MustParseAddr(addr).As16()
	return "\n" + hex.EncodeToString(a[:]) + " "
}
