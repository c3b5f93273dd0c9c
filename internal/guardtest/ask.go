package guardtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"

	"github.com/ipam-guard/ipam-guard/internal/fakeipam/record"
)

// CNIError is an error object as the spec has it.
type CNIError struct {
	CNIVersion string `json:"cniVersion"`
	Code       uint   `json:"code"`
	Msg        string `json:"msg"`
	Details    string `json:"details"`
}

// Error is the error object of a plugin that failed. stdout must be that one
// document and nothing else, with the keys that the spec demands.
func (r Result) Error(t testing.TB) CNIError {
	t.Helper()
	var e CNIError
	if r.RC == 0 || r.Signal != 0 {
		t.Fatalf("want an error, have %+v", r)
	}
	dec := json.NewDecoder(strings.NewReader(r.Stdout))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&e); err != nil {
		t.Fatalf("stdout is not an error object: %v in %+v", err, r)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		t.Fatalf("stdout is more than one document: %+v", r)
	}
	if e.CNIVersion == "" || e.Code == 0 || e.Msg == "" {
		t.Fatalf("the error object needs cniVersion, code and msg: %+v", r)
	}
	return e
}

// OK fails the test unless the plugin exited 0.
func (r Result) OK(t testing.TB) Result {
	t.Helper()
	if r.RC != 0 {
		t.Fatalf("want exit 0, have %+v", r)
	}
	return r
}

// IPs are the addresses of an ADD's result, without prefix lengths.
func (r Result) IPs(t testing.TB) []string {
	t.Helper()
	any, err := create.CreateFromBytes([]byte(r.OK(t).Stdout))
	if err != nil {
		t.Fatalf("stdout is not a result: %v in %+v", err, r)
	}
	result, err := types100.NewResultFromResult(any)
	if err != nil {
		t.Fatal(err)
	}
	var ips []string
	for _, ip := range result.IPs {
		ips = append(ips, ip.Address.IP.String())
	}
	return ips
}

// Leases are the delegate's: address -> container/interface.
func (n *Node) Leases(t testing.TB) map[string]string {
	t.Helper()
	leases := map[string]string{}
	dir := filepath.Join(n.FakeDir, "leases")
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // freed meanwhile
		}
		if err != nil {
			t.Fatal(err)
		}
		f := append(strings.Split(string(data), "\n"), "")
		leases[e.Name()] = f[0] + "/" + f[1]
	}
	return leases
}

// Calls are all runs of the delegate so far, the oldest first; with verbs, only
// those. A faulty script fails the test.
func (n *Node) Calls(t testing.TB, verbs ...string) []record.Call {
	t.Helper()
	all, err := record.Read(n.FakeDir)
	if err != nil {
		t.Fatal(err)
	}
	var calls []record.Call
	for _, c := range all {
		if c.Broken != "" {
			t.Fatalf("the script of call %d, %s, is broken: %s", c.N, c.Verb, c.Broken)
		}
		if len(verbs) == 0 || strings.Contains(" "+strings.Join(verbs, " ")+" ", " "+c.Verb+" ") {
			calls = append(calls, c)
		}
	}
	return calls
}

// AwaitCalls waits until the delegate was called count times with the verb.
func (n *Node) AwaitCalls(t testing.TB, verb string, count int) []record.Call {
	t.Helper()
	var calls []record.Call
	Eventually(t, verb+" of the delegate", func() bool {
		calls = n.Calls(t, verb)
		return len(calls) >= count
	})
	return calls
}

// NoOverlap fails the test if two of ADD, DEL and GC of the delegate ever ran
// at the same time.
func (n *Node) NoOverlap(t testing.TB) {
	t.Helper()
	for _, c := range n.Calls(t) {
		if c.Overlap {
			t.Errorf("call %d, %s of %s, began while another was running", c.N, c.Verb, c.Container)
		}
	}
}

// Log is what the guard logged, a line each.
func (n *Node) Log(t testing.TB) []Object {
	t.Helper()
	data, err := os.ReadFile(n.LogFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	var lines []Object
	for line := range bytes.Lines(data) {
		var o Object
		if err := json.Unmarshal(line, &o); err != nil {
			t.Fatalf("%s: %v in %q", n.LogFile, err, line)
		}
		lines = append(lines, o)
	}
	return lines
}

// Eventually waits for what must come, however slow the machine is.
func Eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited a minute for: %s", what)
		}
	}
}
