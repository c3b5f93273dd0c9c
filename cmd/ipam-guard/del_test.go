package main_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

func sameLines(a, b string) bool {
	return slices.Equal(slices.Sorted(strings.SplitSeq(a, "\n")), slices.Sorted(strings.SplitSeq(b, "\n")))
}

// Case 16: none of these says that the address is free (kubernetes #43488).
func TestErrorsThatAreNoRelease(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	n.Run(t, "ADD", "c1", ask(nil, nil)).OK(t)
	for _, msg := range []string{
		"open /var/lib/cni: permission denied",
		"Did not find reserved IP for container c1: permission denied",
		"Did not find reserved IP for container c1: dial tcp: connection refused",
		"no IP ranges specified",
		`pods "c1" not found`,
	} {
		n.SetScript(t, Script{"DEL": fail(999, msg)})
		e := n.Run(t, "DEL", "c1", ask(nil, Object{"retry": Object{"attempts": 1}})).Error(t)
		if e.CNIVersion != "1.0.0" {
			t.Errorf("%s: %+v", msg, e)
		}
		has(t, e.Details, "container c1", "attempt 1")
	}
	had := len(n.Calls(t))
	junk := map[uint]guardtest.Opts{
		6: {Stdin: []byte("{junk")},
		4: {Env: []string{"CNI_CONTAINERID="}},
	}
	for code, o := range junk {
		if e := n.Run(t, "DEL", "c2", o).Error(t); e.Code != code {
			t.Errorf("code %d, want %d: %+v", e.Code, code, e)
		}
	}
	if e := n.Run(t, "DEL", "c2", guardtest.Opts{Stdin: []byte{}}).Error(t); e.Code != 6 {
		t.Errorf("empty stdin: %+v", e)
	}
	if have := len(n.Calls(t)); have != had {
		t.Error("the delegate was run")
	}
	wantLeases(t, n, "c1/eth0")
}

// Case 12 for one invocation: what is released already counts as done
// (whereabouts #44, #74; ovs-cni #276).
func TestAlreadyReleased(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	r := n.Run(t, "DEL", "c1", ask(Script{"DEL": fail(999, "Did not find reserved IP for container c1")}, nil)).OK(t)
	if r.Stdout != "" {
		t.Errorf("stdout %q", r.Stdout)
	}
	wantCalls(t, n, "DEL")
	if line := lastLine(t, n); line["verdict"] != "succeed" || line["rule"] != "already-released" {
		t.Errorf("log: %v", line)
	}
}

// Case 20: a DEL needs no netns (aws vpc-cni #1939, plugins #1196, sriov-cni
// #164).
func TestDELWithoutNetns(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	for _, env := range []string{"CNI_NETNS", "CNI_NETNS=", "CNI_NETNS=/var/run/netns/gone"} {
		n.Run(t, "ADD", "c1", ask(nil, nil)).OK(t)
		o := ask(nil, nil)
		o.Env = []string{env}
		n.Run(t, "DEL", "c1", o).OK(t)
		wantLeases(t, n)
		calls := n.Calls(t, "DEL")
		_, value, _ := strings.Cut(env, "=")
		if have := calls[len(calls)-1].Netns; have != value {
			t.Errorf("%s: the delegate got %q", env, have)
		}
	}
	wantCalls(t, n, "ADD DEL ADD DEL ADD DEL")
}

// Case 21: whatever prevResult is, or isn't (cni #1156, website #34204).
func TestDELWithAnyPrevResult(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	for name, top := range map[string]Object{
		"missing": {}, "empty": {"prevResult": Object{}}, "a number": {"prevResult": 5}, "a list": {"prevResult": []any{1}},
		"all of a wrong type": {"prevResult": "x", "cniVersion": 5, "runtimeConfig": 7},
		"of no version":       {"prevResult": Object{"cniVersion": "x", "ips": "y"}},
	} {
		o := ask(nil, nil)
		o.Conf.Top = top
		n.Run(t, "ADD", "c1", ask(nil, nil)).OK(t)
		if r := n.Run(t, "DEL", "c1", o); r.RC != 0 {
			t.Errorf("%s: %+v", name, r)
		}
		wantLeases(t, n)
	}
	conf := string(n.Netconf(guardtest.Conf{Top: Object{"prevResult": "HERE"}}))
	o := guardtest.Opts{Stdin: []byte(strings.Replace(conf, `"HERE"`, "null", 1))}
	n.Run(t, "DEL", "c1", o).OK(t)
	has(t, n.Calls(t)[len(n.Calls(t))-1].Stdin, `"prevResult":null`)
}

// Case 21, second part: no cniVersion is 0.1.0.
func TestNoVersion(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	o := ask(nil, nil)
	o.Conf.Top = Object{"cniVersion": nil}
	has(t, n.Run(t, "ADD", "c1", o).OK(t).Stdout, `"ip4"`)
	n.Run(t, "DEL", "c1", o).OK(t)
	wantLeases(t, n)
	o.Conf.Script = Script{"*": fail(999, "no")}
	for _, verb := range []string{"ADD", "DEL"} {
		if e := n.Run(t, verb, "c1", o).Error(t); e.CNIVersion != "0.1.0" {
			t.Errorf("%s: %+v", verb, e)
		}
	}
}

// Case 26: CNI_ARGS are not ours to judge (cni #126, kubernetes #24983).
func TestAnyArgs(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	for _, args := range []string{"UNKNOWN=1", ";;=", "K8S_POD_NAME=a=b;K8S_POD_NAME", "\xff\n'", strings.Repeat("LONG=x;", 2000)} {
		for _, verb := range []string{"ADD", "CHECK", "DEL"} {
			o := ask(nil, nil)
			o.Args = args
			n.Run(t, verb, "c1", o).OK(t)
			calls := n.Calls(t, verb)
			// The record is JSON and can't hold what isn't UTF-8.
			if have := calls[len(calls)-1].Args; have != strings.ToValidUTF8(args, "\ufffd") {
				t.Errorf("%s: %q arrived as %q", verb, args, have)
			}
		}
	}
	wantLeases(t, n)
}

// Case 38: what a DEL prints that went well is nobody's business (cni #60).
func TestOutputOfAGoodDEL(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	for _, statement := range []string{`print "hello"`, `print "{\"code\": 7, \"msg\": \"not meant\"}"`, "alloc; result", "flood 10MB"} {
		o := ask(Script{"DEL": statement + "; free"}, nil) // the ADD's is what counts
		n.Run(t, "ADD", "c1", o).OK(t)
		if r := n.Run(t, "DEL", "c1", o).OK(t); r.Stdout != "" {
			t.Errorf("%s: stdout %.100q", statement, r.Stdout)
		}
		wantLeases(t, n)
	}
}

// Case 45: one container, two interfaces, two attachments (plugins #203).
func TestTwoInterfaces(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	eth0, net1 := ask(nil, nil), ask(nil, nil)
	net1.IfName = "net1"
	n.Run(t, "ADD", "c1", eth0).OK(t)
	n.Run(t, "ADD", "c1", net1).OK(t)
	wantLeases(t, n, "c1/eth0", "c1/net1")
	n.Run(t, "DEL", "c1", net1).OK(t)
	wantLeases(t, n, "c1/eth0")
	failing := net1
	failing.Conf.Script = Script{"ADD": "alloc; " + fail(100, "no")}
	n.Run(t, "ADD", "c1", failing).Error(t)
	wantLeases(t, n, "c1/eth0")
}
