package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// Case 2: an ADD that hangs is rolled back with a clock of its own, under the
// same lock: nobody gets in between (calico #10658).
func TestTimeoutOfADD(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	p := n.Start(t, "ADD", "c1", ask(
		Script{"ADD": "alloc; touch allocated; sleep 60s", "DEL": "sleep 2500ms; free"}, // the DEL takes longer than an ADD may
		Object{"timeout": Object{"add": "2s"}},
	))
	n.AwaitCalls(t, "ADD", 1)
	next := n.Start(t, "DEL", "next", ask(nil, nil))
	r := p.Wait(t)
	e := r.Error(t)
	if e.Code != 11 || e.CNIVersion != "1.0.0" || r.Took < 4500*time.Millisecond || r.Took > 40*time.Second {
		t.Errorf("have %+v after %v", e, r.Took)
	}
	has(t, e.Msg, "ADD", "container c1", "timeout of 2s")
	hasNot(t, e.Msg+e.Details, "rollback")
	next.Wait(t).OK(t)
	wantCalls(t, n, "ADD DEL DEL")
	if calls := n.Calls(t); calls[1].Container != "c1" || calls[2].Container != "next" {
		t.Errorf("somebody got in between: %+v", calls)
	}
	n.NoOverlap(t)
	wantLeases(t, n)
}

// Case 28: a delegate that won't be told never allocates afterwards (danm #165).
func TestDelegateThatIgnoresTERM(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	r := n.Run(t, "ADD", "c1", ask(
		Script{"ADD": "ignore TERM; touch ignoring; sleep 6s; alloc; touch late"},
		Object{"timeout": Object{"add": "2s"}},
	))
	if e := r.Error(t); e.Code != 11 {
		t.Errorf("have %+v", e)
	}
	add := n.Calls(t, "ADD")[0]
	if guardtest.Alive(add.PID) {
		t.Error("the delegate is still there")
	}
	time.Sleep(max(0, 7*time.Second-r.Took)) // past the moment of its alloc
	if _, err := os.Stat(filepath.Join(n.FakeDir, "late")); err == nil {
		t.Error("the delegate went on")
	}
	wantCalls(t, n, "ADD DEL")
	wantLeases(t, n)
}

// Case 29: exit 0 with a result that nobody can use (calico cni-plugin #325,
// sriov-cni #39, multus #2).
func TestResultThatIsNone(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ statement, cause string }{
		"no ips":       {`print "{\"cniVersion\": \"1.0.0\", \"ips\": []}"`, "no address"},
		"empty object": {`print "{}"`, "{}"},
		"null":         {`print "null"`, "null"},
		"no JSON":      {`print "10.9.0.2"`, "JSON"},
		"bad CIDR":     {`print "{\"cniVersion\": \"1.0.0\", \"ips\": [{\"address\": \"10.9.0.2/99\"}]}"`, "invalid CIDR address: 10.9.0.2/99"},
		"200 MB":       {`flood 200MB`, "1048576 bytes"},
		"endless JSON": {`print "{\"cniVersion\": \"1.0.0\", \"dns\": \""; flood 20MB`, "1048576 bytes"},
		"two results":  {`result; result`, "JSON"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := guardtest.New(t)
			o := ask(Script{"ADD": "alloc; " + tt.statement}, nil)
			o.Runtime = true
			r := n.Run(t, "ADD", "c1", o)
			e := r.Error(t)
			has(t, e.Msg, "fake", "container c1", "exit status 0", tt.cause)
			if e.Code != 999 || len(e.Msg) > 2000 {
				t.Errorf("have %+v", e)
			}
			wantCalls(t, n, "ADD DEL")
			wantLeases(t, n)
			if r.MaxRSSKB > 64<<10 {
				t.Errorf("%d KiB at its peak", r.MaxRSSKB)
			}
		})
	}
}

// Case 30: half an allocation and an error (calico cni-plugin #908, spiderpool
// #1045).
func TestErrorAfterAllocating(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	add := "alloc; " + fail(100, "no IPv6", "pool v6 is empty")
	e := n.Run(t, "ADD", "c1", ask(Script{"ADD": add}, nil)).Error(t)
	if want := (guardtest.CNIError{CNIVersion: "1.0.0", Code: 100, Msg: "no IPv6", Details: "pool v6 is empty"}); e != want {
		t.Errorf("have %+v\nwant %+v", e, want)
	}
	wantCalls(t, n, "ADD DEL")
	wantLeases(t, n)

	// The rollback fails too, once: a rollback is one attempt.
	e = n.Run(t, "ADD", "c1", ask(Script{"ADD": add, "DEL": fail(102, "DEL is out of order")}, nil)).Error(t)
	if e.Code != 100 || e.Msg != "no IPv6" || !strings.HasPrefix(e.Details, "pool v6 is empty; ") {
		t.Errorf("have %+v", e)
	}
	has(t, e.Details, "rollback", "container c1", "DEL is out of order", "may be left")
	wantCalls(t, n, "ADD DEL ADD DEL")
	wantLeases(t, n, "c1/eth0")
}

// Case 33: the delegate dies by itself (snc #203).
func TestDelegateDiesOfASignal(t *testing.T) {
	t.Parallel()
	for name, number := range map[string]int{"KILL": 9, "SEGV": 11} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := guardtest.New(t)
			die := `stderr "its last \"words\"\n"; sleep 50ms; die ` + name
			script := Script{"ADD": "alloc; " + die, "DEL": []string{"free", die}}
			settings := Object{"retry": Object{"attempts": 1}}
			for _, verb := range []string{"ADD", "DEL"} {
				e := n.Run(t, verb, "c1", ask(script, settings)).Error(t)
				if e.Code != 11 {
					t.Errorf("%s: %+v", verb, e)
				}
				has(t, e.Msg, "fake", verb, "container c1", fmt.Sprintf("signal %d", number), "ipam-guard did not send it")
				has(t, e.Details, `its last \"words\"`)
				_, after, _ := strings.Cut(e.Msg, " after ")
				word, _, _ := strings.Cut(after, ";")
				if d, err := time.ParseDuration(word); err != nil || d < 50*time.Millisecond {
					t.Errorf("%s: after %q", verb, word)
				}
			}
			wantCalls(t, n, "ADD DEL DEL")
			wantLeases(t, n)
		})
	}
}

// Case 61: a pod from before the guard was there keeps its address.
func TestDuplicateAllocation(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	script := Script{"ADD": "alloc-once"}
	n.Run(t, "ADD", "c1", bare(n, script)).OK(t)
	e := n.Run(t, "ADD", "c1", ask(script, nil)).Error(t)
	if e.Code != 999 || e.Details != "" {
		t.Errorf("have %+v", e)
	}
	has(t, e.Msg, "10.9.0.2 has been allocated to c1, duplicate allocation is not allowed")
	wantCalls(t, n, "ADD ADD")
	wantLeases(t, n, "c1/eth0")
}

// What counts is the delegate's own error: the same words in its chatter don't
// keep a failed ADD from being rolled back.
func TestDuplicateAllocationOnStderr(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	chatter := `stderr "range 0: duplicate allocation is not allowed, trying range 1\n"; alloc; `
	for name, end := range map[string]string{"hangs": "sleep 60s", "prints junk": `print "junk"`, "dies": "die KILL"} {
		n.Run(t, "ADD", name, ask(Script{"ADD": chatter + end}, Object{"timeout": Object{"add": "2s"}})).Error(t)
	}
	wantLeases(t, n)
}

// An ADD is tried again only if asked to, and only from a clean slate.
func TestRetryOfADD(t *testing.T) {
	t.Parallel()
	refused := "alloc; " + fail(999, "dial tcp 10.0.0.1:443: connect: connection refused")
	twice := Object{"retry": Object{"attempts": Object{"add": 2}, "backoff": "1ms"}}
	tests := map[string]struct {
		script   Script
		settings Object
		rc       int
		calls    string
		leases   []string
	}{
		"asked to":             {Script{"ADD": []string{refused, "alloc"}}, twice, 0, "ADD DEL ADD", []string{"c1/eth0"}},
		"in vain":              {Script{"ADD": refused}, twice, 1, "ADD DEL ADD DEL", nil},
		"not asked to":         {Script{"ADD": refused}, nil, 1, "ADD DEL", nil},
		"nothing transient":    {Script{"ADD": "alloc; " + fail(999, "no such pool")}, twice, 1, "ADD DEL", nil},
		"not rolled back":      {Script{"ADD": refused, "DEL": fail(999, "no")}, twice, 1, "ADD DEL", []string{"c1/eth0"}},
		"rolled back, nothing": {Script{"ADD": []string{refused, "alloc"}, "DEL": "free; " + fail(999, "Did not find reserved IP for container c1")}, twice, 0, "ADD DEL ADD", []string{"c1/eth0"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := guardtest.New(t)
			if r := n.Run(t, "ADD", "c1", ask(tt.script, tt.settings)); r.RC != tt.rc {
				t.Errorf("have %+v", r)
			}
			wantCalls(t, n, tt.calls)
			wantLeases(t, n, tt.leases...)
			n.NoOverlap(t)
		})
	}
}

// A rollback is the same call with another verb, and nothing else.
func TestRollbackGetsTheSameCall(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	o := ask(Script{"ADD": "alloc; " + fail(100, "no")}, nil)
	o.Args, o.IfName, o.Env = "IgnoreUnknown=1;K8S_POD_NAME=p", "net7", []string{"HTTPS_PROXY=http://proxy"}
	n.Run(t, "ADD", "c1", o).Error(t)
	calls := n.Calls(t)
	if len(calls) != 2 || calls[0].Stdin != calls[1].Stdin {
		t.Fatalf("have %+v", calls)
	}
	add, del := strings.Join(calls[0].Env, "\n"), strings.Join(calls[1].Env, "\n")
	has(t, add, "CNI_COMMAND=ADD", "CNI_IFNAME=net7", "CNI_ARGS="+o.Args, "HTTPS_PROXY=http://proxy", "IPAM_GUARD_ABOVE=")
	sorted := func(env string) string { return strings.ReplaceAll(env, "CNI_COMMAND=ADD", "CNI_COMMAND=DEL") }
	if !sameLines(sorted(add), del) {
		t.Errorf("environments\n%s\n\n%s", add, del)
	}
}
