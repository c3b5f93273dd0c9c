package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// Case 36: debug lines before the result (userspace-cni #3, cni #670).
func TestDebugLinesBeforeTheResult(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	debug := "DEBUG \x1b[31mred\x1b[0m \"quoted\"\n" + strings.Repeat("and more ", 50)
	e := n.Run(t, "ADD", "c1", ask(Script{"ADD": fmt.Sprintf("alloc; print %q; result", debug)}, nil)).Error(t)
	has(t, e.Msg, "fake", "container c1", "exit status 0", strconv.Quote(debug[:200])+"...")
	hasNot(t, e.Msg, "\x1b")
	wantCalls(t, n, "ADD DEL")
	wantLeases(t, n)
}

// Case 37: nothing on stdout, and nothing but a panic on stderr (cilium #7978,
// calico cni-plugin #377).
func TestNothingOnStdout(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	e := n.Run(t, "ADD", "c1", ask(Script{"ADD": `alloc; stderr "so long\n"; exit 0`}, nil)).Error(t)
	has(t, e.Msg, "fake", "container c1", "exit status 0", "no result")
	has(t, e.Details, `so long`)
	wantCalls(t, n, "ADD DEL")
	wantLeases(t, n)

	r := n.Run(t, "DEL", "c1", ask(Script{"DEL": "panic"}, nil))
	e = r.Error(t)
	has(t, e.Msg, "fake", "DEL", "container c1", "exit status 2", "nothing on stdout")
	has(t, e.Details, "goroutine 1", "main.main()") // the end of a panic
	has(t, r.Stderr, "panic: fakeipam: as the script says")
	if line := lastLine(t, n); line["rule"] != "policy.onError" {
		t.Errorf("log: %v", line)
	}
	if len(e.Details) > 4000 {
		t.Errorf("%d bytes of details", len(e.Details))
	}
}

// An error object and exit 0, or an exit status and something else: neither is
// what the specification has.
func TestExitAndOutputThatDontFit(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	for script, part := range map[string]string{
		`alloc; error0 "sorry" 100`:            "sorry",
		`alloc; print "oh no"; exit 1`:         "oh no",
		`alloc; print "{}"; exit 1`:            "{}",
		`alloc; print "[1]"; exit 4`:           "exit status 4",
		`alloc; print "{\"code\":100"; exit 1`: "exit status 1",
	} {
		e := n.Run(t, "ADD", "c1", ask(Script{"ADD": script}, nil)).Error(t)
		if e.Code != 999 {
			t.Errorf("%s: %+v", script, e)
		}
		has(t, e.Msg, part)
		wantLeases(t, n)
	}
}

// Case 39: a valid result doesn't make up for an exit status.
func TestExitStatusWithAResult(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	for _, code := range []int{1, 2, 126, 127, 255} {
		r := n.Run(t, "ADD", "c1", ask(Script{"ADD": fmt.Sprintf("alloc; result; exit %d", code)}, nil))
		e := r.Error(t)
		if r.RC != 1 {
			t.Errorf("exit %d: %+v", code, r)
		}
		has(t, e.Msg, fmt.Sprintf("exit status %d ", code), "10.9.0.2")
		wantLeases(t, n)
	}
	wantCalls(t, n, strings.TrimSpace(strings.Repeat("ADD DEL ", 5)))
}

// Case 40: a result is the delegate's own, to the last byte (cni #444, plugins
// #12).
func TestResultsGoThroughUnchanged(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ version, result string }{
		"without cniVersion":       {"1.0.0", `{"ips": [{"address": "10.9.0.2/16"}]}`},
		"without cniVersion 0.3.1": {"0.3.1", `{"ips": [{"version": "4", "address": "10.9.0.2/16"}]}`},
		"without cniVersion 0.2.0": {"0.2.0", `{"ip4": {"ip": "10.9.0.2/16"}}`},
		"four addresses, /32, /128": {"1.1.0", `{"cniVersion": "1.1.0", "ips": [{"address": "10.9.0.2/32"},
			{"address": "10.9.0.3/32", "gateway": "10.9.0.1"}, {"address": "fd09::2/128"}, {"address":"fd09::3/64"}]}`},
		"bytes": {"1.0.0", "\n\t{ \"x-unknown\" : [9007199254740993, 1.0, 1e3, \"\\u00e9<>&\", null],\r\n" +
			`"ips" : [ {"address":"10.9.0.2/16", "address2":"?"} ],"dns":{},"routes":[],"cniVersion":"1.0.0", "interfaces":null }` + "\n\n"},
		"older than the config": {"1.1.0", `{"cniVersion":"0.4.0","ips":[{"version":"4","address":"10.9.0.2/16"}]}`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := guardtest.New(t)
			if err := os.WriteFile(n.FakeDir+"/result", []byte(tt.result), 0o600); err != nil {
				t.Fatal(err)
			}
			o := ask(Script{"ADD": "alloc; printfile result"}, nil)
			o.Conf.Version = tt.version
			if r := n.Run(t, "ADD", "c1", o).OK(t); r.Stdout != tt.result {
				t.Errorf("have %q\nwant %q", r.Stdout, tt.result)
			}
			wantCalls(t, n, "ADD")
		})
	}
}

// Case 42: an older delegate's own refusal (plugins #425, #690).
func TestDelegateOfAnOlderSpecification(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	refusal := fail(1, "incompatible CNI versions", `config is "1.1.0", plugin supports ["0.1.0" "0.4.0"]`)
	o := ask(Script{"ADD": refusal, "CHECK": refusal, "GC": refusal, "STATUS": refusal}, nil)
	o.Conf.Version, o.Conf.Top = "1.1.0", Object{"cni.dev/valid-attachments": []any{}}
	want := guardtest.CNIError{CNIVersion: "1.1.0", Code: 1, Msg: "incompatible CNI versions", Details: `config is "1.1.0", plugin supports ["0.1.0" "0.4.0"]`}
	for _, verb := range []string{"ADD", "CHECK", "GC", "STATUS"} {
		if e := n.Run(t, verb, "c1", o).Error(t); e != want {
			t.Errorf("%s: have %+v\nwant %+v", verb, e, want)
		}
	}
	// Such a one refuses the DEL too, be it a rollback.
	o.Conf.Script = Script{"*": refusal}
	for _, verb := range []string{"ADD", "DEL"} {
		e := n.Run(t, verb, "c1", o).Error(t)
		if e.Code != 1 || e.Msg != want.Msg || !strings.HasPrefix(e.Details, want.Details) {
			t.Errorf("%s: have %+v\nwant %+v", verb, e, want)
		}
	}
}

// Case 41, and what containerd reads: a DEL that failed never says "not found"
// or "no such file or directory". In the log it says what it said (plugins #78).
func TestFailedDELIsNeverWordedAsDone(t *testing.T) {
	t.Parallel()
	dhcp := "error dialing DHCP daemon: dial unix /run/cni/dhcp.sock: connect: no such file or directory"
	tests := map[string]struct {
		del      string
		original string
		o        guardtest.Opts
	}{
		"dhcp":                             {del: fail(999, dhcp), original: dhcp},
		"in details":                       {del: fail(100, "no", "stat /x: No Such File or Directory"), original: "No Such File or Directory"},
		"not found":                        {del: fail(100, `pods "x" Not Found`), original: `pods "x" Not Found`},
		"on stderr":                        {del: `stderr "sh: jq: not found\n"; exit 127`, original: "jq: not found"},
		"on stdout":                        {del: `print "jq: not found"; exit 1`, original: "jq: not found"},
		"hung":                             {del: `stderr "x not found, waiting\n"; sleep 60s`, original: "x not found"},
		"died":                             {del: `stderr "x: no such file or directory\n"; die ABRT`, original: "no such file or directory"},
		"missing":                          {o: guardtest.Opts{Path: "/nonexistent"}},
		"no path":                          {o: guardtest.Opts{Env: []string{"CNI_PATH="}}},
		"a script without its interpreter": {o: guardtest.Opts{Conf: guardtest.Conf{Delegate: Object{"type": "lost"}}}},
		"bad stdin":                        {o: guardtest.Opts{Stdin: []byte("{}")}},
		"bypass":                           {del: `stderr "jq: not found\n"; exit 127`, o: guardtest.Opts{Conf: guardtest.Conf{Guard: Object{"mode": "bypass"}}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := guardtest.New(t)
			lost := n.InstallScript(t, "lost", "")
			if err := os.WriteFile(lost, []byte("#!/nonexistent/sh\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			o := tt.o
			if tt.del != "" {
				o.Conf.Script = Script{"DEL": tt.del}
			}
			if o.Conf.Guard == nil {
				o.Conf.Guard = Object{"timeout": Object{"del": "2s"}, "retry": Object{"attempts": 1}}
			}
			r := n.Run(t, "DEL", "c1", o)
			r.Error(t)
			hasNot(t, r.Stdout, "not found", "no such file or directory")
			if tt.original != "" {
				line, _ := json.Marshal(lastLine(t, n)["error"])
				has(t, string(line), strings.Trim(strconv.Quote(tt.original), `"`))
			}
		})
	}
}
