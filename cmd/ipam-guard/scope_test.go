package main_test

import (
	"os"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// asNobody makes a call come from a user who isn't root.
func asNobody(t testing.TB, n *guardtest.Node, o *guardtest.Opts) {
	t.Helper()
	if os.Geteuid() != 0 {
		return // we are such a user
	}
	n.Open(t)
	o.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
}

// Which lock file a setting leads to; the delegate inherits that one and
// nothing else.
func TestLockScopes(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		delegate string
		lock     Object
		want     string
	}{
		"default":              {"fake", Object{}, "delegate-fake"},
		"delegate":             {"fake", Object{"scope": "delegate"}, "delegate-fake"},
		"host":                 {"fake", Object{"scope": "host"}, "host"},
		"network":              {"fake", Object{"scope": "network"}, "network-testnet"},
		"none":                 {"fake", Object{"scope": "none"}, ""},
		"name":                 {"fake", Object{"name": "shared"}, "name-shared"},
		"name, whatever scope": {"fake", Object{"name": "shared", "scope": "none"}, "name-shared"},
		"dhcp":                 {"dhcp", Object{}, ""},
		"dhcp if asked to":     {"dhcp", Object{"scope": "delegate"}, "delegate-dhcp"},
		"static":               {"static", Object{}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := guardtest.New(t)
			if tt.delegate != "fake" {
				n.Install(t, guardtest.Build(t, guardtest.Fake), "bin", tt.delegate)
			}
			o := ask(nil, Object{"lock": tt.lock})
			o.Conf.Delegate = Object{"type": tt.delegate}
			n.Run(t, "ADD", "c1", o).OK(t)
			n.Run(t, "DEL", "c1", o).OK(t)
			var paths []string
			path := ""
			if tt.want != "" {
				path = n.LockPath(tt.want)
				paths = []string{path}
			}
			for _, c := range n.Calls(t) {
				if have := inherited(c); !slices.Equal(have, paths) {
					t.Errorf("%s of the delegate has inherited %v, want %v", c.Verb, have, paths)
				}
			}
			if have, _ := lastLine(t, n)["lock"].(string); have != path {
				t.Errorf("lock %q in the log, want %q", have, path)
			}
		})
	}
}

// A slow delegate holds up neither another type nor, where each network has a
// lock of its own, another network.
func TestScopesKeepOthersFree(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	n.Install(t, guardtest.Build(t, guardtest.Fake), "bin", "other")
	slow := n.Start(t, "ADD", "slow", ask(Script{"ADD": "alloc; waitfile go"}, nil))
	n.AwaitCalls(t, "ADD", 1)
	o := ask(nil, nil)
	o.Conf.Delegate = Object{"type": "other"}
	n.Run(t, "ADD", "c1", o).OK(t)
	o = ask(nil, Object{"lock": Object{"scope": "network"}})
	n.Run(t, "ADD", "c2", o).OK(t)
	n.Touch(t, "go")
	slow.Wait(t).OK(t)
}

// Between two attempts the lock is everybody's.
func TestLockIsFreeBetweenAttempts(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	refused := fail(999, "dial tcp 10.0.0.1:443: connect: connection refused")
	p := n.Start(t, "DEL", "c1", ask(
		Script{"DEL": []string{"waitfile go; " + refused, refused, refused, refused, refused, "free"}},
		Object{"retry": Object{"attempts": 6, "backoff": "300ms", "maxBackoff": "300ms"}},
	))
	n.AwaitCalls(t, "DEL", 1)
	f, err := os.Open(n.LockPath("delegate-fake"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n.Touch(t, "go")
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	had := len(n.Calls(t, "DEL"))
	if had >= 6 {
		t.Errorf("the lock came only after attempt %d", had)
	}
	awaitQueue(t, p, n.LockPath("delegate-fake"))
	if have := len(n.Calls(t, "DEL")); have != had {
		t.Errorf("attempt %d ran without the lock", have)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	p.Wait(t).OK(t)
	if have := len(n.Calls(t, "DEL")); have != 6 {
		t.Errorf("%d attempts", have)
	}
	attempts, _ := lastLine(t, n)["attempts"].([]any)
	if len(attempts) != 6 {
		t.Errorf("attempts in the log: %v", attempts)
	}
}
