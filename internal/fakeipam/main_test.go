package main_test

import (
	"encoding/json"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

func TestMain(m *testing.M) { guardtest.Main(m) }

// direct calls the fake delegate itself, with no guard in front.
func direct(n *guardtest.Node, c guardtest.Conf) guardtest.Opts {
	c.Position = guardtest.Bare
	return guardtest.Opts{Conf: c, Binary: n.Bin + "/fake"}
}

func run(t *testing.T, n *guardtest.Node, verb, container, script string) guardtest.Result {
	t.Helper()
	return n.Run(t, verb, container, direct(n, guardtest.Conf{Script: guardtest.Script{verb: script}}))
}

func TestResultInEveryVersion(t *testing.T) {
	t.Parallel()
	keys := map[string]string{
		"": "ip4", "0.1.0": "ip4", "0.2.0": "ip4", "0.3.0": "version", "0.3.1": "version", "0.4.0": "version", "1.0.0": "ips", "1.1.0": "ips",
	}
	for v, key := range keys {
		t.Run("version "+v, func(t *testing.T) {
			t.Parallel()
			n := guardtest.New(t)
			o := direct(n, guardtest.Conf{
				Top:    guardtest.Object{"cniVersion": v},
				Script: guardtest.Script{"ADD": "alloc; alloc6"},
			})
			out := n.Run(t, "ADD", "c1", o).OK(t).Stdout
			any, err := create.Create(v, []byte(out))
			if v == "" {
				any, err = create.CreateFromBytes([]byte(out))
			}
			if err != nil {
				t.Fatalf("%v in %s", err, out)
			}
			result, err := types100.NewResultFromResult(any)
			if err != nil {
				t.Fatal(err)
			}
			var have []string
			for _, ip := range result.IPs {
				have = append(have, ip.Address.String()+" "+ip.Gateway.String())
			}
			if want := []string{"10.9.0.2/16 10.9.0.1", "fd09::2/64 fd09::1"}; !slices.Equal(have, want) {
				t.Errorf("have %v, want %v", have, want)
			}
			if strings.Contains(out, `"version"`) != (key == "version") || strings.Contains(out, `"ip4"`) != (key == "ip4") {
				t.Errorf("not the shape of %q: %s", v, out)
			}
		})
	}
}

func TestUnknownVersion(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	r := n.Run(t, "ADD", "c1", direct(n, guardtest.Conf{Version: "9.9.9"}))
	if e := errorObject(t, r); r.RC != 1 || e.Code != 1 {
		t.Errorf("have %+v", r)
	}
}

// errorObject is what the reference skeleton prints: no cniVersion.
func errorObject(t *testing.T, r guardtest.Result) guardtest.CNIError {
	t.Helper()
	var e guardtest.CNIError
	if err := json.Unmarshal([]byte(r.Stdout), &e); err != nil {
		t.Fatalf("%v in %+v", err, r)
	}
	return e
}

func TestEndings(t *testing.T) {
	t.Parallel()
	tests := []struct {
		script string
		rc     int
		signal syscall.Signal
		stdout string // a part of it; "" means that there is nothing
		stderr string
	}{
		{script: `exit 7`, rc: 7},
		{script: `exit 3 "no; luck" 101 "so sad"`, rc: 3, stdout: `"details": "so sad"`},
		{script: `exit 3 "no; luck" 101`, rc: 3, stdout: `"msg": "no; luck"`},
		{script: `error0 "wrong" 100`, stdout: `"code": 100`},
		{script: `alloc; exit 0`},
		{script: `alloc; result; exit 126`, rc: 126, stdout: `"10.9.0.2/16"`},
		{script: "print `{\"a\":1}`", stdout: `{"a":1}`},
		{script: `print "debug\n"; alloc; result`, stdout: "debug\n{"},
		{script: `printfile script.json`, stdout: `"ADD"`},
		{script: `stderr "oh\n"; exit 1`, rc: 1, stderr: "oh\n"},
		{script: `floodstderr 100KB; exit 1`, rc: 1, stderr: "flood"},
		{script: `panic`, rc: 2, stderr: "as the script says"},
		{script: `die SEGV`, rc: -1, signal: syscall.SIGSEGV},
		{script: `die KILL`, rc: -1, signal: syscall.SIGKILL},
		{script: `ignore TERM; die TERM`, rc: -1, signal: syscall.SIGTERM},
	}
	for _, tt := range tests {
		t.Run(tt.script, func(t *testing.T) {
			t.Parallel()
			n := guardtest.New(t)
			n.SetScript(t, guardtest.Script{"ADD": tt.script})
			r := n.Run(t, "ADD", "c1", direct(n, guardtest.Conf{}))
			if r.RC != tt.rc || r.Signal != tt.signal {
				t.Errorf("rc %d, signal %v; want %d, %v", r.RC, r.Signal, tt.rc, tt.signal)
			}
			if !strings.Contains(r.Stdout, tt.stdout) || tt.stdout == "" && r.Stdout != "" {
				t.Errorf("stdout %q, want %q", r.Stdout, tt.stdout)
			}
			if !strings.Contains(r.Stderr, tt.stderr) || tt.stderr == "" && r.Stderr != "" {
				t.Errorf("stderr %q, want %q", r.Stderr, tt.stderr)
			}
			c := n.Calls(t)[0]
			if c.Ended != (tt.signal == 0 && tt.rc != 2) || c.Ended && c.Exit != tt.rc {
				t.Errorf("recorded end: %v, exit %d", c.Ended, c.Exit)
			}
		})
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	for _, verb := range []string{"ADD", "CHECK", "STATUS", "GC"} {
		n.Run(t, verb, "c1", direct(n, guardtest.Conf{})).OK(t)
	}
	if have := n.Leases(t); len(have) != 1 || have["10.9.0.2"] != "c1/eth0" {
		t.Errorf("after ADD: %v", have)
	}
	if r := n.Run(t, "DEL", "c1", direct(n, guardtest.Conf{})).OK(t); r.Stdout != "" {
		t.Errorf("DEL prints %q", r.Stdout)
	}
	if have := n.Leases(t); len(have) != 0 {
		t.Errorf("after DEL: %v", have)
	}
	o := direct(n, guardtest.Conf{})
	o.Stdin = []byte{}
	if r := n.Run(t, "VERSION", "", o).OK(t); !strings.Contains(r.Stdout, `"supportedVersions"`) {
		t.Errorf("VERSION prints %q", r.Stdout)
	}
}

func TestScriptOfTheNthCall(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	o := direct(n, guardtest.Conf{Script: guardtest.Script{"DEL": []string{"exit 1", "exit 2", "exit 3"}, "*": "exit 9"}})
	del := func(container string, want ...int) {
		t.Helper()
		for _, rc := range want {
			if r := n.Run(t, "DEL", container, o); r.RC != rc {
				t.Errorf("rc %d, want %d", r.RC, rc)
			}
		}
	}
	del("c1", 1)
	if r := n.Run(t, "ADD", "c1", o); r.RC != 9 {
		t.Errorf("rc %d of another verb, want that of *", r.RC)
	}
	del("c2", 2, 3, 3)
	n.SetScript(t, guardtest.Script{"DEL": []string{"exit 11", "exit 12"}})
	del("c1", 11, 12, 12)
	n.SetScript(t, nil)
	del("c1", 1)
}

func TestSleepAndIgnoredSignal(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	p := n.Start(t, "ADD", "c1", direct(n, guardtest.Conf{Script: guardtest.Script{"ADD": "ignore TERM; touch ready; sleep 300ms; alloc"}}))
	guardtest.Eventually(t, "ready", func() bool { return exists(n.FakeDir + "/ready") })
	p.Signal(syscall.SIGTERM)
	if r := p.Wait(t).OK(t); r.Took < 300*time.Millisecond {
		t.Errorf("took %v", r.Took)
	}
	p = n.Start(t, "ADD", "c2", direct(n, guardtest.Conf{Script: guardtest.Script{"ADD": "waitfile never"}}))
	n.AwaitCalls(t, "ADD", 2)
	p.Signal(syscall.SIGTERM)
	if r := p.Wait(t); r.Signal != syscall.SIGTERM {
		t.Errorf("SIGTERM is ignored unasked: %+v", r)
	}
}
