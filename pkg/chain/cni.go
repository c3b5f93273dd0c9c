package chain

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/ipam-guard/ipam-guard/pkg/conflist"
)

// What the guard speaks of the CNI specification. The CNI library's own types
// would do, but a plugin pays for what it links at every start: they bring the
// net package and compile regular expressions. A test holds the two together.

// Error codes, as in the specification's section 5 and the reference skeleton.
const (
	codeVersion       uint = 1
	codeEnvironment   uint = 4
	codeIO            uint = 5
	codeDecoding      uint = 6
	codeConfig        uint = 7
	codeTryAgain      uint = 11
	codeNotAvailable  uint = 50
	codeInternal      uint = 999
	maxInterfaceName       = 15
	latest                 = "1.1.0"
	withoutCNIVersion      = "0.1.0"
)

// versions are those of the specification that the guard supports.
var versions = []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", latest}

// Error is a CNI error object.
type Error struct {
	Code    uint   `json:"code"`
	Msg     string `json:"msg"`
	Details string `json:"details,omitempty"`
}

func (e *Error) Error() string { return joined(e.Msg, e.Details) }

func newError(code uint, msg, details string) *Error { return &Error{code, msg, details} }

// attachment is an element of a GC's list of valid attachments.
type attachment struct {
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifname"`
}

// legalName reports whether text is a legal container id or network name:
// [a-zA-Z0-9][a-zA-Z0-9_.-]*.
func legalName(text string) bool {
	for i, c := range []byte(text) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && (i == 0 || c != '_' && c != '.' && c != '-') {
			return false
		}
	}
	return text != ""
}

// illegalInterface says what is wrong with an interface's name, "" if nothing.
func illegalInterface(name string) string {
	bad := func(r rune) bool { return r == '/' || r == ':' || unicode.IsSpace(r) }
	switch {
	case name == "":
		return "is empty"
	case len(name) > maxInterfaceName:
		return fmt.Sprintf("is longer than %d characters", maxInterfaceName)
	case name == "." || name == "..":
		return "is . or .."
	case strings.ContainsFunc(name, bad):
		return "contains /, : or white space"
	}
	return ""
}

// atLeast compares two versions like "1.0.0".
func atLeast(version, least string) (bool, error) {
	v, err := numbers(version)
	if err != nil {
		return false, err
	}
	l, err := numbers(least)
	if err != nil {
		return false, err
	}
	for i := range v {
		if v[i] != l[i] {
			return v[i] > l[i], nil
		}
	}
	return true, nil
}

func numbers(version string) (out [3]int, err error) {
	parts := strings.Split(version, ".")
	if len(parts) > len(out) {
		return out, fmt.Errorf("invalid version %q: too many parts", version)
	}
	for i, p := range parts {
		if out[i], err = strconv.Atoi(p); err != nil {
			return out, fmt.Errorf("invalid version %q: %w", version, err)
		}
	}
	return out, nil
}

// addresses counts the addresses of a result of that version, or says why it
// can't be read.
func addresses(result conflist.Object, version string) (int, error) {
	if text, ok := conflist.String(result.Value("cniVersion")); ok {
		version = orDefault(text, version)
	}
	old, err := atLeast("0.2.0", version)
	if err != nil {
		return 0, err
	}
	if old {
		return oldAddresses(result)
	}
	m, ok := result.Find("ips")
	if !ok {
		return 0, nil
	}
	elements, ok := conflist.Elements(result.Doc, m.Value)
	if !ok {
		return 0, errors.New("ips is no list")
	}
	for _, e := range elements {
		ip, err := result.At(e)
		if err != nil {
			return 0, err
		}
		if err := checkCIDR(ip.Value("address")); err != nil {
			return 0, err
		}
	}
	return len(elements), nil
}

// oldAddresses counts those of a result up to version 0.2.0.
func oldAddresses(result conflist.Object) (n int, err error) {
	for _, family := range []string{"ip4", "ip6"} {
		ip, err := result.Object(family)
		if err != nil || ip.Doc == nil {
			continue
		}
		if err := checkCIDR(ip.Value("ip")); err != nil {
			return 0, err
		}
		n++
	}
	return n, nil
}

func checkCIDR(value []byte) error {
	text, ok := conflist.String(value)
	addr, bits, cut := strings.Cut(text, "/")
	n, err := strconv.Atoi(bits)
	if !ok || !cut || err != nil || strconv.Itoa(n) != bits || n > addressBits(addr) {
		return fmt.Errorf("invalid CIDR address: %s", orDefault(text, orDefault(string(value), "none")))
	}
	return nil
}

// addressBits is 32 for an IPv4 address, 128 for an IPv6 one, -1 for neither.
func addressBits(addr string) int {
	if !strings.Contains(addr, ":") {
		if dotted(addr) {
			return 32
		}
		return -1
	}
	left, right, gap := strings.Cut(addr, "::")
	l, okL := groups(left, !gap)
	r, okR := groups(right, true)
	if okL && okR && (gap && l+r < 8 || !gap && l == 8) {
		return 128
	}
	return -1
}

func dotted(addr string) bool {
	parts := strings.Split(addr, ".")
	for _, p := range parts {
		if n, err := strconv.ParseUint(p, 10, 8); err != nil || strconv.FormatUint(n, 10) != p {
			return false
		}
	}
	return len(parts) == 4
}

// groups counts the 16-bit groups of one side of an IPv6 address; the last two of
// the address may be written as an IPv4 address.
func groups(side string, end bool) (n int, ok bool) {
	if side == "" {
		return 0, true
	}
	parts := strings.Split(side, ":")
	for i, p := range parts {
		if end && i == len(parts)-1 && dotted(p) {
			n++
		} else if _, err := strconv.ParseUint(p, 16, 16); err != nil || len(p) > 4 || p[0] == '+' {
			return 0, false
		}
		n++
	}
	return n, true
}
