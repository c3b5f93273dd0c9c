package main_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// Case 10: a guard below a guard, by the netconf and by a copy of the binary:
// the outer one guards, the inner one passes through.
func TestGuardBelowGuard(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"ipam-guard", "copy"} {
		n := guardtest.New(t)
		if name == "copy" {
			copyOf(t, n.Guard(), filepath.Join(n.Bin, name))
		}
		o := ask(nil, nil)
		// One lock for both: should the inner one want it, it would hang.
		n.SetNodeFile(t, Object{"defaults": Object{"lock": Object{"name": "shared"}}})
		inner := Object{"type": "fake", "dir": n.FakeDir, "script": Script{"DEL": []string{fail(11, "busy"), "free"}}}
		o.Conf.Delegate = Object{"type": name, "delegate": inner, "dir": nil}
		add := n.Run(t, "ADD", "c1", o)
		if name == "ipam-guard" {
			e := add.Error(t)
			if e.Code != 7 {
				t.Errorf("have %+v", e)
			}
			has(t, e.Msg, "ipam.delegate.type", `"ipam-guard"`, "not the guard itself")
			n.Run(t, "ADD", "c1", bare(n, nil)).OK(t)
		} else {
			add.OK(t)
		}
		wantLeases(t, n, "c1/eth0")
		o.Conf.Guard = Object{"retry": Object{"backoff": "1ms"}}
		n.Run(t, "DEL", "c1", o).OK(t)
		wantLeases(t, n)
		// The retry is the outer one's: two attempts, not four.
		if have := len(n.Calls(t, "DEL")); have != 2 {
			t.Errorf("%s: %d DELs of the delegate", name, have)
		}
		for _, c := range n.Calls(t, "DEL") {
			if c.Above == "" || strings.Join(inherited(c), " ") != "" && inherited(c)[0] != n.LockPath("name-shared") {
				t.Errorf("%s: above %q, inherited %v", name, c.Above, inherited(c))
			}
		}
	}
}

// Case 10, the folders: host-local's garbage collection removes foreign files
// from <dataDir>/<network>, so ours may not be there.
func TestFoldersInHostLocalsStore(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	n.Install(t, guardtest.Build(t, guardtest.Fake), "bin", "host-local")
	data := filepath.Join(n.Dir, "networks")
	for _, key := range []string{"stateDir", "lockDir"} {
		for _, dir := range []string{data + "/testnet", data + "/testnet/deeper/still", data + "/other/../testnet"} {
			o := ask(nil, Object{key: dir})
			o.Conf.Delegate = Object{"type": "host-local", "dataDir": data}
			for _, verb := range []string{"ADD", "CHECK"} {
				e := n.Run(t, verb, "c1", o).Error(t)
				if e.Code != 7 {
					t.Errorf("%s: %+v", verb, e)
				}
				has(t, e.Msg, "guard."+key, data+"/testnet")
			}
		}
		o := ask(nil, Object{key: data + "/testnet2"})
		o.Conf.Delegate = Object{"type": "host-local", "dataDir": data}
		n.Run(t, "ADD", "c-"+key, o).OK(t)
	}
	wantCalls(t, n, "ADD ADD")
	// A DEL goes on, with the built-in folder: what is bad is left out.
	const builtin = "/var/lib/cni/ipam-guard"
	if _, err := os.Lstat(builtin); errors.Is(err, fs.ErrNotExist) {
		t.Cleanup(func() { _ = os.RemoveAll(builtin) })
	}
	o := ask(nil, Object{"stateDir": data + "/testnet"})
	o.Conf.Delegate = Object{"type": "host-local", "dataDir": data}
	n.Run(t, "DEL", "c-stateDir", o).OK(t)
	has(t, strings.Join(warnings(lastLine(t, n)), "\n"), "guard.stateDir")
}

// Case 35: stdout is for the result (aws vpc-cni #1248).
func TestLogFileThatIsStdout(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	for _, file := range []string{"stdout", "/dev/stdout", "/proc/self/fd/1", "/dev/fd/1", "/proc/self/../self/fd/1"} {
		settings := Object{"log": Object{"file": file, "level": "debug"}}
		e := n.Run(t, "ADD", "c1", ask(nil, settings)).Error(t)
		if e.Code != 7 {
			t.Errorf("%s: %+v", file, e)
		}
		has(t, e.Msg, "guard.log.file", fmt.Sprintf("%q", file))
		if r := n.Run(t, "DEL", "c1", ask(nil, settings)).OK(t); r.Stdout != "" {
			t.Errorf("%s: stdout %q", file, r.Stdout)
		}
	}
	wantCalls(t, n, "DEL DEL DEL DEL DEL")

	// By a name that doesn't tell: no line gets there.
	link := filepath.Join(n.Dir, "link")
	if err := os.Symlink("/proc/self/fd/1", link); err != nil {
		t.Fatal(err)
	}
	settings := Object{"log": Object{"file": link, "level": "debug"}}
	r := n.Run(t, "ADD", "c1", ask(nil, settings)).OK(t)
	if ips := r.IPs(t); len(ips) != 1 || strings.Contains(r.Stdout, "lock_wait_ms") {
		t.Errorf("have %+v", r)
	}
	if r = n.Run(t, "DEL", "c1", ask(nil, settings)).OK(t); r.Stdout != "" {
		t.Errorf("stdout %q", r.Stdout)
	}
}

// Case 58: a typo, or a newer binary's key: every DEL works, ADD says what is
// wrong.
func TestTyposNeverLoseADEL(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		nodeFile any
		guard    Object
		says     []string
	}{
		"typo in the node's file":  {Object{"defaults": Object{"timout": "5s"}}, nil, []string{"defaults.timout", "timeout", "node-config.json"}},
		"newer key":                {Object{"delegates": Object{"fake": Object{"hologram": true}}}, nil, []string{"delegates.fake.hologram", "node-config.json"}},
		"junk in the node's file":  {"{junk", nil, []string{"node's file", "node-config.json"}},
		"empty node's file":        {"", nil, []string{"node's file", "node-config.json"}},
		"typo in the netconf":      {nil, Object{"lock": Object{"scop": "host"}}, []string{"guard.lock.scop", "scope", "netconf"}},
		"bad value":                {nil, Object{"timeout": Object{"del": "20"}}, []string{"guard.timeout.del", `"20"`, `"20s"`}},
		"deadline below its need":  {nil, Object{"deadline": Object{"del": "20s"}}, []string{"guard.deadline.del", `"20s"`, "at least 21s"}},
		"a rule that is none":      {nil, Object{"policy": Object{"rules": []any{Object{"name": "x", "match": Object{"message": "("}}}}}, []string{"guard.policy.rules[0].match.message", "RE2"}},
		"settings that are a list": {nil, Object{"timeout": []int{1}}, []string{"guard.timeout", "[1]"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := guardtest.New(t)
			n.Run(t, "ADD", "c1", ask(nil, nil)).OK(t)
			if tt.nodeFile != nil {
				n.SetNodeFile(t, tt.nodeFile)
			}
			o := ask(nil, tt.guard)
			o.Conf.Version, o.Conf.Top = "1.1.0", Object{"cni.dev/valid-attachments": []any{}}
			for _, verb := range []string{"ADD", "CHECK"} {
				e := n.Run(t, verb, "c2", o).Error(t)
				if e.Code != 7 || e.CNIVersion != "1.1.0" {
					t.Errorf("%s: %+v", verb, e)
				}
				has(t, e.Msg, tt.says...)
			}
			for _, verb := range []string{"STATUS", "GC", "DEL"} {
				r := n.Run(t, verb, "c1", o).OK(t)
				if r.Stdout != "" {
					t.Errorf("%s: stdout %q", verb, r.Stdout)
				}
				has(t, r.Stderr, tt.says[0])
			}
			wantCalls(t, n, "ADD STATUS GC DEL")
			wantLeases(t, n)
		})
	}
}

// Several problems are all told at once.
func TestAllProblemsAreNamed(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	e := n.Run(t, "ADD", "c1", ask(nil, Object{"mode": "off", "timeout": "soon", "gc": 1})).Error(t)
	for _, key := range []string{"guard.mode", "guard.timeout", "guard.gc"} {
		has(t, e.Msg+e.Details, key)
	}
}

// mode bypass in the node's file switches the guard off: no lock, no policy, no
// refusal, the delegate's own answer.
func TestBypass(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	n.HoldLock(t, n.LockPath("delegate-fake"), time.Hour)
	n.SetNodeFile(t, Object{"defaults": Object{"mode": "bypass"}})
	typo := Object{"timout": "5s", "timeout": Object{"del": "100ms"}}
	n.Run(t, "ADD", "c1", ask(nil, typo)).OK(t)
	wantLeases(t, n, "c1/eth0")
	n.Run(t, "DEL", "c1", ask(Script{"DEL": "sleep 500ms; free"}, typo)).OK(t) // no clock of ours either
	wantLeases(t, n)
	for _, c := range n.Calls(t) {
		if len(c.FDs) > 0 {
			t.Errorf("%s has inherited %v", c.Verb, c.FDs)
		}
	}
	own := `print "{\"code\": 11,  \"msg\": \"x is not found\"}\n"; exit 3`
	for _, verb := range []string{"DEL", "ADD"} {
		r := n.Run(t, verb, "c1", ask(Script{"*": own}, typo))
		if r.RC != 3 || r.Stdout != `{"code": 11,  "msg": "x is not found"}`+"\n" {
			t.Errorf("%s: %+v", verb, r)
		}
	}
	wantCalls(t, n, "ADD DEL DEL ADD")
	if line := lastLine(t, n); line["verdict"] != "bypass" {
		t.Errorf("log: %v", line)
	}
	n.SetNodeFile(t, Object{"delegates": Object{"other": Object{"mode": "bypass"}}})
	if e := n.Run(t, "ADD", "c1", ask(nil, typo)).Error(t); e.Code != 7 {
		t.Errorf("another delegate's bypass: %+v", e)
	}
}
