//go:build integration

package integration_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// tee puts a delegate before host-local that keeps what comes on its stdin.
func (m *machine) tee(t *testing.T) (stdin func() string) {
	t.Helper()
	file := filepath.Join(m.Dir, "stdin")
	m.InstallScript(t, "tee-local", `cat >`+file+` && exec "`+m.hostLocal()+`" <`+file)
	return func() string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}

// A netconf by hand: IPAM stands for the value of `ipam`, RANGES for a range.
type spelling struct {
	name, netconf  string
	ipam, expected string // what the guard gets there, and what host-local should
}

const delegate = `{"type":"tee-local","dataDir":"DATA","ranges":RANGES}`

func spellings() []spelling {
	guarded := func(extra string) string {
		return `{"type":"ipam-guard","delegate":` + delegate + `,"guard":GUARD` + extra + `}`
	}
	return []spelling{
		{
			"as libcni writes it", `{"cniVersion":"1.0.0","ipam":IPAM,"name":"pods","type":"bridge"}`,
			guarded(""), delegate,
		},
		{
			"numbers", `{"cniVersion":"1.0.0","name":"pods","big":9007199254740993,"f":1.0,"e":1e3,"g":-1E+3,"z":-0,"deep":[{"n":[1.50,12345678901234567890]}],"ipam":IPAM}`,
			guarded(""), delegate,
		},
		{
			"escapes", `{"cniVersion":"1.0.0","name":"\u0070ods","<>&":"<b>&amp;\u003c\/","\u00e9":"é \ud83d\ude00 😀\u2028","lone":"\ud800","ipam":IPAM}`,
			guarded(""), delegate,
		},
		{
			"tabs, CRLF and order", "\r\n\t{ \"zz\" :\t[ ] ,\r\n\t\"name\":\"pods\"\t,\r\n\"ipam\" :\r\n IPAM \t,\r\n\"cniVersion\":\"1.0.0\" , \"aa\":{ }\r\n}\r\n ",
			"{ \"guard\" : GUARD ,\r\n\t\"delegate\" : " + delegate + " , \"type\"\t:\"ipam-guard\" }", delegate,
		},
		{
			"the delegate's own spelling", `{"cniVersion":"1.0.0","name":"pods","ipam":IPAM}`,
			"{\"type\":\"ipam-guard\",\"delegate\":{\t\"x\" : 1.0,\r\n\"type\":\"tee\\u002dlocal\", \"dataDir\":\"DATA\",\"ranges\" :RANGES,\"y\":{\"guard\":1,\"delegate\":{}} },\"guard\":GUARD}",
			"{\t\"x\" : 1.0,\r\n\"type\":\"tee\\u002dlocal\", \"dataDir\":\"DATA\",\"ranges\" :RANGES,\"y\":{\"guard\":1,\"delegate\":{}} }",
		},
		{
			"prevResult and runtimeConfig", `{"cniVersion":"1.0.0","name":"pods","prevResult":{"cniVersion":"1.0.0","ips":[],"x":1e0},"runtimeConfig":{"ips":[]},"ipam":IPAM,"args":{"cni":{"labels":[{"key":"a","value":"<"}]}}}`,
			guarded(""), delegate,
		},
		{
			"names of ours elsewhere", `{"cniVersion":"1.0.0","name":"pods","guard":{"no":"setting"},"delegate":{"type":"flannel"},"ipam":IPAM}`,
			guarded(""), delegate,
		},
		{
			"flannel's ranges replace in place, its routes are appended", `{"cniVersion":"1.0.0","name":"pods","ipam":IPAM}`,
			`{"type":"ipam-guard","ranges":[ [{"subnet":"10.77.0.0/24"}] ],"delegate":{"type":"tee-local","dataDir":"DATA","ranges":[[{"subnet":"10.66.0.0/24"}]],"last":true},"guard":GUARD,"routes":[{"dst":"10.77.0.0/16" }]}`,
			`{"type":"tee-local","dataDir":"DATA","ranges":[ [{"subnet":"10.77.0.0/24"}] ],"last":true,"routes":[{"dst":"10.77.0.0/16" }]}`,
		},
		{
			"appended to an object with white space", `{"cniVersion":"1.0.0","name":"pods","ipam":IPAM}`,
			"{\"type\":\"ipam-guard\",\"delegate\":{ \"type\":\"tee-local\",\"dataDir\":\"DATA\" },\"guard\":GUARD, \"ranges\" : RANGES}",
			"{ \"type\":\"tee-local\",\"dataDir\":\"DATA\" ,\"ranges\" : RANGES}",
		},
	}
}

// Case 52: what isn't ours reaches the delegate byte for byte, seen at its own
// stdin, and its result comes back the same way.
func TestCase52BytesAtTheDelegatesStdin(t *testing.T) {
	for _, s := range spellings() {
		t.Run(s.name, func(t *testing.T) {
			m := newMachine(t)
			stdin := m.tee(t)
			fill := strings.NewReplacer(
				"DATA", m.dataDir(), "RANGES", `[[{"subnet":"10.99.0.0/24"}]]`,
				"GUARD", `{"lockDir":"`+m.LockDir+`","stateDir":"`+m.StateDir+`","log":{"file":"`+m.LogFile+`"}}`,
			).Replace
			given := fill(strings.Replace(s.netconf, "IPAM", s.ipam, 1))
			want := fill(strings.Replace(s.netconf, "IPAM", s.expected, 1))
			guarded := m.Run(t, "ADD", "pod", opts{Stdin: []byte(given)}).OK(t)
			if diff := cmp.Diff(want, stdin()); diff != "" {
				t.Errorf("stdin of the delegate (-want +have):\n%s", diff)
			}
			m.Run(t, "DEL", "pod", opts{Stdin: []byte(given)}).OK(t)
			if left := m.reserved(t, "pods"); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			if err := os.RemoveAll(m.dataDir()); err != nil { // host-local would go on counting
				t.Fatal(err)
			}
			bare := m.Run(t, "ADD", "pod", opts{Stdin: []byte(want), Binary: m.hostLocal()}).OK(t)
			if diff := cmp.Diff(bare.Stdout, guarded.Stdout); diff != "" {
				t.Errorf("the result (-bare +guarded):\n%s", diff)
			}
		})
	}
}

// Case 52: a name that occurs twice on a level that is walked is refused, in
// whatever letter case; elsewhere it is nobody's business.
func TestCase52DuplicateNames(t *testing.T) {
	for name, netconf := range map[string]string{
		"top":      `{"cniVersion":"1.0.0","name":"pods","Name":"pods","ipam":{"type":"ipam-guard","delegate":DELEGATE,"guard":GUARD}}`,
		"ipam":     `{"cniVersion":"1.0.0","name":"pods","ipam":{"type":"ipam-guard","delegate":DELEGATE,"guard":GUARD,"routes":[],"Routes":[]}}`,
		"delegate": `{"cniVersion":"1.0.0","name":"pods","ipam":{"type":"ipam-guard","delegate":{"TYPE":"x",REST,"guard":GUARD}}`,
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			stdin := m.tee(t)
			text := strings.NewReplacer(
				"REST", strings.TrimPrefix(delegate, "{"), "DELEGATE", delegate,
				"GUARD", `{"lockDir":"`+m.LockDir+`","stateDir":"`+m.StateDir+`","log":{"file":"`+m.LogFile+`"}}`,
			).Replace(netconf)
			text = strings.NewReplacer("DATA", m.dataDir(), "RANGES", `[[{"subnet":"10.99.0.0/24"}]]`).Replace(text)
			e := m.Run(t, "ADD", "pod", opts{Stdin: []byte(text)}).Error(t)
			if e.Code != 7 || !strings.Contains(e.Msg, "twice") {
				t.Errorf("ADD: code %d, %q; want code 7 and that a name occurs twice", e.Code, e.Msg)
			}
			m.Run(t, "DEL", "pod", opts{Stdin: []byte(text)}).OK(t) // a DEL never refuses
			if got := stdin(); !strings.Contains(got, "tee-local") {
				t.Errorf("DEL gave the delegate %s", got)
			}
		})
	}
}

// The same through bridge, whose stdin libcni writes: only the ipam object
// differs from what host-local would get without the guard.
func TestBridgeHandsOnAllButOurs(t *testing.T) {
	seen := map[string]string{}
	for _, position := range []string{guardtest.IPAM, guardtest.Bare} {
		n := newNetwork(t)
		stdin := n.tee(t)
		list := n.conflist(t, conf{
			Position: position, Name: "pods",
			Delegate: object{"type": "tee-local", "dataDir": filepath.Join(n.Dir, "networks"), "x-number": 9007199254740992, "x-text": "<>&"},
		})
		if _, err := n.cni.AddNetworkList(t.Context(), list, n.container(t, "pod", "eth0")); err != nil {
			t.Fatal(err)
		}
		seen[position] = strings.ReplaceAll(stdin(), n.Dir, "DIR")
	}
	if diff := cmp.Diff(seen[guardtest.Bare], seen[guardtest.IPAM]); diff != "" {
		t.Errorf("stdin of the delegate (-bare +guarded):\n%s", diff)
	}
}
