//go:build integration

package integration_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// bad is one thing wrong with a call. The guard's answers are host-local's
// own, which come from the reference skeleton, but where differs has the code
// for a verb, and why says the reason.
type bad struct {
	name    string
	verbs   string
	env     []string
	conf    conf
	stdin   string // in place of conf; IPAM stands for the ipam object
	differs map[string]uint
	why     string
}

func badCalls() []bad {
	const all = "ADD DEL CHECK GC STATUS"
	return []bad{
		{name: "nothing", verbs: all},
		{name: "no container id", verbs: "ADD DEL CHECK", env: []string{"CNI_CONTAINERID"}},
		{name: "no interface name", verbs: "ADD DEL CHECK", env: []string{"CNI_IFNAME"}},
		{name: "no netns", verbs: "ADD DEL CHECK", env: []string{"CNI_NETNS"}},
		{name: "no path", verbs: all, env: []string{"CNI_PATH"}},
		{name: "no container id, no interface name", verbs: "ADD DEL CHECK", env: []string{"CNI_CONTAINERID", "CNI_IFNAME"}},
		{name: "a path as container id", verbs: "ADD DEL CHECK", env: []string{"CNI_CONTAINERID=../pod"}},
		{name: "a container id with a space", verbs: "ADD DEL CHECK", env: []string{"CNI_CONTAINERID=a pod"}},
		{name: "a long interface name", verbs: "ADD DEL CHECK", env: []string{"CNI_IFNAME=an-interface-name"}},
		{name: "an interface called ..", verbs: "ADD DEL CHECK", env: []string{"CNI_IFNAME=.."}},
		{name: "an interface name with a slash", verbs: "ADD DEL CHECK", env: []string{"CNI_IFNAME=a/b"}},
		{name: "unknown verb", verbs: "UPDATE add", env: nil},
		{name: "no verb", verbs: all, env: []string{"CNI_COMMAND"}},
		{
			name: "a netns that is the plugin's own", verbs: "ADD DEL", env: []string{"CNI_NETNS_OVERRIDE"},
			differs: map[string]uint{"ADD": 999}, why: "the skeleton looks after the fact: a result and an error on stdout are two documents",
		},
		{name: "malformed args", verbs: "ADD DEL CHECK", env: []string{"CNI_ARGS=novalue"}},
		{name: "unknown args", verbs: "ADD DEL CHECK", env: []string{"CNI_ARGS=UNKNOWN=1"}},

		{name: "empty stdin", verbs: all, stdin: " "},
		{name: "no JSON", verbs: all, stdin: `{"cniVersion": "1.1.0",`},
		{name: "an array", verbs: all, stdin: `[1]`},
		{name: "two documents", verbs: all, stdin: `{"cniVersion":"1.1.0","name":"pods","ipam":IPAM}{}`},
		{name: "no network name", verbs: all, conf: conf{Top: object{"name": nil}}},
		{name: "a path as network name", verbs: all, conf: conf{Name: "a/b"}},
		{
			name: "a number as network name", verbs: all, stdin: `{"cniVersion":"1.1.0","name":1,"cni.dev/valid-attachments":[],"ipam":IPAM}`,
			differs: map[string]uint{"ADD": 7, "CHECK": 7}, why: "the stdin is JSON and one of its values is wrong: 7 names it",
		},
		{
			name: "a number as version", verbs: all, stdin: `{"cniVersion":1.1,"name":"pods","cni.dev/valid-attachments":[],"ipam":IPAM}`,
			differs: map[string]uint{"ADD": 7, "CHECK": 7, "GC": 1, "STATUS": 1},
			why:     "the stdin is JSON and one of its values is wrong: 7 names it; the others go on as without a version",
		},
		{name: "version 0.3.1", verbs: "CHECK", conf: conf{Version: "0.3.1"}},
		{name: "version 1.0.0", verbs: "GC STATUS", conf: conf{Version: "1.0.0"}},
		{name: "no version", verbs: all, conf: conf{Top: object{"cniVersion": nil}}},
		{name: "an empty version", verbs: all, conf: conf{Top: object{"cniVersion": ""}}},
		{name: "version 9.9.9", verbs: all, conf: conf{Version: "9.9.9"}},
		{name: "version 1.2", verbs: all, conf: conf{Version: "1.2"}},
		{name: "a version that is a word", verbs: all, conf: conf{Version: "newest"}},

		{name: "no ranges", verbs: all, conf: conf{Delegate: object{"ranges": nil}}},
		{name: "a range that is none", verbs: all, conf: conf{Delegate: object{"ranges": [][]object{{{"subnet": "usePodCidr"}}}}}},
		{
			name: "no ipam object", verbs: all, stdin: `{"cniVersion":"1.1.0","name":"pods"}`,
			differs: map[string]uint{"ADD": 7, "DEL": 7, "CHECK": 7, "GC": 7, "STATUS": 7}, why: "there is nothing to run: 7 says which key is missing",
		},
		{
			name: "ipam is a text", verbs: all, stdin: `{"cniVersion":"1.1.0","name":"pods","ipam":"host-local"}`,
			differs: map[string]uint{"ADD": 7, "DEL": 7, "CHECK": 7, "GC": 7, "STATUS": 7}, why: "there is nothing to run: 7 says which key is wrong",
		},
		{
			name: "a name twice", verbs: "ADD DEL CHECK", stdin: `{"cniVersion":"1.1.0","name":"pods","name":"pods","ipam":IPAM}`,
			differs: map[string]uint{"ADD": 7, "CHECK": 7}, why: "what such an object means depends on who reads it",
		},
	}
}

// The guard doesn't use the reference skeleton, which links and checks more
// than its hot path needs. This compares the two: real host-local's answer and
// the guard's with host-local behind it.
func TestErrorsAreTheReferenceSkeletons(t *testing.T) {
	for _, b := range badCalls() {
		for _, verb := range strings.Fields(b.verbs) {
			t.Run(b.name+"/"+verb, func(t *testing.T) { compare(t, b, verb) })
		}
	}
}

func compare(t *testing.T, b bad, verb string) {
	bare, bareMsg := ask(t, b, verb, guardtest.Bare)
	guarded, msg := ask(t, b, verb, guardtest.IPAM)
	want, differs := b.differs[verb]
	switch {
	case !differs && guarded != bare:
		t.Errorf("guarded: code %d %q; bare: code %d %q", guarded, msg, bare, bareMsg)
	case differs && guarded != want:
		t.Errorf("guarded: code %d %q, want %d (bare: %d): %s", guarded, msg, want, bare, b.why)
	case differs && want == bare:
		t.Errorf("code %d is no difference: take it off the list", bare)
	}
}

// ask makes the call on a machine of its own and returns the code, 0 for none.
func ask(t *testing.T, b bad, verb, position string) (code uint, msg string) {
	t.Helper()
	m := newMachine(t)
	c := b.conf
	c.Position = position
	if c.Version == "" {
		c.Version = "1.1.0"
	}
	if c.Name == "" {
		c.Name = "pods"
	}
	c = m.conf(c)
	if verb == "GC" {
		top := object{validKey: list{}}
		for k, v := range c.Top {
			top[k] = v
		}
		c.Top = top
	}
	o := opts{Conf: c, Env: b.env}
	if b.stdin != "" {
		o.Stdin = []byte(strings.Replace(b.stdin, "IPAM", m.ipam(t, c), 1))
	}
	if position == guardtest.Bare {
		o.Binary = m.hostLocal()
	}
	id := ""
	if verb != "GC" && verb != "STATUS" {
		id = "pod"
		o.Netns = fmt.Sprintf("/proc/%d/ns/net", os.Getpid())
	}
	if verb == "CHECK" && b.valid() {
		m.Run(t, "ADD", id, opts{Conf: c, Binary: o.Binary}).OK(t)
	}
	r := m.Run(t, verb, id, o)
	if r.RC == 0 {
		return 0, r.Stdout
	}
	if position == guardtest.IPAM {
		e := r.Error(t)
		return e.Code, e.Msg
	}
	return lastError(t, r)
}

// lastError reads the skeleton's error, which may come after a result.
func lastError(t *testing.T, r guardtest.Result) (code uint, msg string) {
	t.Helper()
	var e guardtest.CNIError
	for dec := json.NewDecoder(strings.NewReader(r.Stdout)); dec.More(); {
		e = guardtest.CNIError{}
		if err := dec.Decode(&e); err != nil {
			t.Fatalf("host-local: %v in %+v", err, r)
		}
	}
	if e.Code == 0 {
		t.Fatalf("host-local failed without an error: %+v", r)
	}
	return e.Code, e.Msg
}

// valid says that the configuration itself is good, so that an ADD can go
// before a CHECK.
func (b bad) valid() bool {
	return b.stdin == "" && b.conf.Version == "" && b.conf.Name == "" && b.conf.Delegate == nil && b.conf.Top == nil
}

// ipam is the ipam object that the machine would give.
func (m *machine) ipam(t *testing.T, c conf) string {
	t.Helper()
	var netconf struct {
		IPAM json.RawMessage `json:"ipam"`
	}
	if err := json.Unmarshal(m.Netconf(c), &netconf); err != nil {
		t.Fatal(err)
	}
	return string(netconf.IPAM)
}
