package chain_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"
	"github.com/containernetworking/cni/pkg/utils"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/ipam-guard/ipam-guard/pkg/chain"
)

// What the guard says of names and versions is what the CNI library says.
func TestSpecificationLikeTheLibrary(t *testing.T) {
	for _, name := range []string{"", "a", "-a", ".a", "_a", "a.b-c_D9", "a b", "a/b", "é", "a\x00", "0", strings.Repeat("x", 300)} {
		if got, want := chain.LegalName(name), utils.ValidateContainerID(name) == nil; got != want {
			t.Errorf("name %q: %v, library %v", name, got, want)
		}
	}
	for _, name := range []string{"", "eth0", ".", "..", "...", "a/b", "a:b", "a b", "a\u00a0b", strings.Repeat("x", 15), strings.Repeat("x", 16), "é"} {
		if got, want := chain.IllegalInterface(name) == "", utils.ValidateInterfaceName(name) == nil; got != want {
			t.Errorf("interface %q: %v, library %v", name, got, want)
		}
	}
	if !slices.Equal(chain.Versions, version.All.SupportedVersions()) {
		t.Errorf("versions %v, library %v", chain.Versions, version.All.SupportedVersions())
	}
	for _, v := range append([]string{"0.3", "1", "2.0.0", "1.0.0.0", "x", "1.x.0", "1.10.0"}, chain.Versions...) {
		for _, least := range []string{"0.4.0", "1.1.0"} {
			got, err := chain.AtLeast(v, least)
			want, libErr := version.GreaterThanOrEqualTo(v, least)
			if got != want || (err == nil) != (libErr == nil) {
				t.Errorf("%q >= %s: %v, %v; library %v, %v", v, least, got, err, want, libErr)
			}
		}
	}
}

// A result is good for the guard if the library reads it and finds an address.
func TestResultsLikeTheLibrary(t *testing.T) {
	results := []string{
		`{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.2/24","gateway":"10.0.0.1"}],"dns":{}}`,
		`{"ips":[{"address":"10.0.0.2/32"},{"address":"fd00::2/128"}]}`,
		`{"cniVersion":"0.4.0","ips":[{"version":"4","address":"10.0.0.2/24"}]}`,
		`{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.2/24"},"ip6":{"ip":"fd00::2/64"}}`,
		`{"cniVersion":"0.1.0","ip6":{"ip":"fd00::2/64"}}`,
		`{"ip4":{"ip":"10.0.0.2/24"}}`,
		`{"cniVersion":"1.0.0","ips":[]}`, `{"cniVersion":"1.0.0"}`, `{"cniVersion":"1.0.0","ips":null}`, `{}`,
		`{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.300/24"}]}`, `{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.2"}]}`,
		`{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.2/33"}]}`, `{"cniVersion":"1.0.0","ips":{}}`,
		`{"cniVersion":"1.0.0","ips":["10.0.0.2/24"]}`, `{"cniVersion":"0.2.0","ip4":{"ip":"x"}}`, `{"cniVersion":"0.2.0"}`,
		`{"cniVersion":"0.2.0","ips":[{"address":"10.0.0.2/24"}]}`, `{"cniVersion":"one","ips":[{"address":"10.0.0.2/24"}]}`,
	}
	for _, text := range results {
		for _, v := range []string{"0.2.0", "0.4.0", "1.1.0"} {
			n, err := chain.Addresses([]byte(text), v)
			if want := byLibrary(text, v); (err == nil && n > 0) != want {
				t.Errorf("%s under %s: %d addresses, %v; library: %v", text, v, n, err, want)
			}
		}
	}
}

func byLibrary(text, v string) bool {
	decoded, err := new(version.ConfigDecoder).Decode([]byte(text))
	if err == nil && strings.Contains(text, "cniVersion") {
		v = decoded
	}
	if !strings.Contains(text, "cniVersion") { // as libcni does
		text = fmt.Sprintf(`{"cniVersion":%q,%s`, v, strings.TrimPrefix(text, "{"))
		text = strings.Replace(text, ",}", "}", 1)
	}
	result, err := create.Create(v, []byte(text))
	if err != nil {
		return false
	}
	r, err := current.NewResultFromResult(result)
	return err == nil && len(r.IPs) > 0
}

// FuzzAddress: what netip takes for an address is one, and nothing else but
// what only a zone sets apart.
func FuzzAddress(f *testing.F) {
	for _, seed := range []string{"10.0.0.1", "::", "fd00::1", "1::2::3", "::ffff:1.2.3.4", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7::", "01.2.3.4", "1.2.3", "::1%eth0", ":1:2:3:4:5:6:7", "12345::", "+1::", "0.0.0.0::", "1:1.2.3.4::"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := netip.ParseAddr(text)
		want := -1
		if err == nil && a.Zone() == "" {
			want = a.BitLen()
		}
		if got := chain.AddressBits(text); got != want {
			t.Fatalf("%q: %d bits, netip %d (%v)", text, got, want, err)
		}
	})
}
