package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// Case 49: a log that can't be written never fails an ADD or DEL (cilium
// #48279, tigera operator #2402).
func TestLogThatCantBeWritten(t *testing.T) {
	t.Parallel()
	tests := map[string]func(t *testing.T, file string) string{
		"a file in its way": func(t *testing.T, file string) string {
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return file + "/ipam-guard.log"
		},
		"a folder": func(t *testing.T, file string) string {
			if err := os.MkdirAll(file, 0o700); err != nil {
				t.Fatal(err)
			}
			return file
		},
		"a FIFO": func(t *testing.T, file string) string {
			if err := unix.Mkfifo(file, 0o600); err != nil {
				t.Fatal(err)
			}
			return file
		},
		"full": func(t *testing.T, file string) string {
			if err := os.Symlink("/dev/full", file); err != nil {
				t.Fatal(err)
			}
			return file
		},
		"read-only": func(t *testing.T, file string) string {
			if err := os.Mkdir(file, 0o555); err != nil {
				t.Fatal(err)
			}
			return file + "/ipam-guard.log"
		},
	}
	for name, make := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := guardtest.New(t)
			file := make(t, filepath.Join(n.Dir, "log"))
			o := ask(nil, Object{"log": Object{"file": file}})
			asNobody(t, n, &o)
			for _, verb := range []string{"ADD", "DEL"} {
				r := n.Run(t, verb, "c1", o).OK(t)
				if have := strings.Count(r.Stderr, fmt.Sprintf("log file %q", file)); have != 1 {
					t.Errorf("%s: %d warnings on stderr: %s", verb, have, r.Stderr)
				}
				hasNot(t, r.Stderr, "no such file", "not found")
			}
			// An error is told in full where it would be lost otherwise.
			o.Conf.Script = Script{"DEL": fail(100, "own words")}
			has(t, n.Run(t, "DEL", "c1", o).Stderr, "own words", "fail", "policy.onError")
		})
	}
}

// Case 49, the folder that isn't there yet.
func TestLogFolderIsMade(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	file := filepath.Join(n.Dir, "a", "b", "guard.log")
	n.Run(t, "ADD", "c1", ask(nil, Object{"log": Object{"file": file}})).OK(t)
	if data, err := os.ReadFile(file); err != nil || strings.Count(string(data), "\n") != 1 {
		t.Errorf("%q, %v", data, err)
	}
}

// Case 49, many at once: no line is lost in a rotation, no file outgrows its
// size by much.
func TestRotationByManyAtOnce(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	const herd, maxSize = 40, 4096
	o := ask(nil, Object{"lock": Object{"scope": "none"}, "log": Object{"maxSize": maxSize, "keep": 100}})
	var wg sync.WaitGroup
	for i := range herd {
		p := n.Start(t, "DEL", fmt.Sprintf("c%d", i), o)
		wg.Go(func() {
			if r := p.Wait(t); r.RC != 0 {
				t.Errorf("have %+v", r)
			}
		})
	}
	wg.Wait()
	files, err := filepath.Glob(n.LogFile + "*")
	if err != nil || len(files) < 4 {
		t.Errorf("no rotation: %v, %v", files, err)
	}
	seen := map[string]bool{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if len(data) > 3*maxSize {
			t.Errorf("%s has %d bytes", file, len(data))
		}
		for line := range strings.Lines(string(data)) {
			var o struct{ Container string }
			if err := json.Unmarshal([]byte(line), &o); err != nil {
				t.Errorf("%v in %q", err, line)
			}
			seen[o.Container] = true
		}
	}
	if len(seen) != herd {
		t.Errorf("%d lines of %d", len(seen), herd)
	}
}

// What one invocation leaves in the log.
func TestLogLine(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	o := ask(Script{"ADD": "alloc; " + fail(100, "own words")}, nil)
	o.Env = []string{"TRACEPARENT=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	n.Run(t, "ADD", "c1", o).Error(t)
	n.Run(t, "DEL", "c1", ask(nil, nil)).OK(t)
	lines := n.Log(t)
	if len(lines) != 2 {
		t.Fatalf("%d lines: %v", len(lines), lines)
	}
	for i, want := range []Object{
		{
			"msg": "own words", "verb": "ADD", "network": "testnet", "container": "c1", "ifname": "eth0", "position": "ipam",
			"delegate": "fake", "lock": n.LockPath("delegate-fake"), "verdict": "fail", "rule": "policy.onError",
			"trace_id": "0af7651916cd43dd8448eb211c80319c", "version": "dev", "level": "error",
		},
		{"msg": "done", "verb": "DEL", "verdict": "ok", "rule": nil, "trace_id": nil},
	} {
		for key, value := range want {
			if lines[i][key] != value {
				t.Errorf("line %d: %s is %v, want %v", i, key, lines[i][key], value)
			}
		}
		for _, key := range []string{"ts", "lock_wait_ms", "total_ms", "attempts"} {
			if lines[i][key] == nil {
				t.Errorf("line %d has no %s", i, key)
			}
		}
	}
	attempts := lines[0]["attempts"].([]any)
	if len(attempts) != 2 || attempts[0].(Object)["code"] != 100.0 || attempts[1].(Object)["verb"] != "DEL" {
		t.Errorf("attempts %v", attempts)
	}
}

// Questions that went well are for debugging.
func TestQuietVerbs(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	o := ask(nil, nil)
	o.Conf.Version = "1.1.0"
	// Without what would be worth a warning.
	o.Conf.Guard = Object{"stateDir": nil}
	n.SetNodeFile(t, Object{"defaults": Object{"stateDir": nil}})
	for _, verb := range []string{"STATUS", "CHECK", "VERSION"} {
		if r := n.Run(t, verb, "c1", o).OK(t); r.Stderr != "" {
			t.Errorf("%s: stderr %q", verb, r.Stderr)
		}
	}
	if lines := n.Log(t); len(lines) > 0 {
		t.Errorf("logged %v", lines)
	}
	n.SetNodeFile(t, Object{"defaults": Object{"stateDir": nil, "log": Object{"level": "debug"}}})
	for _, verb := range []string{"STATUS", "CHECK"} {
		n.Run(t, verb, "c1", o).OK(t)
	}
	if lines := n.Log(t); len(lines) != 2 {
		t.Errorf("logged %v", lines)
	}
}

// Where the node's file puts the log, there go the calls, too, that never got
// as far as a netconf.
func TestLogOfACallWithoutANetconf(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	n.Run(t, "ADD", "c1", guardtest.Opts{Stdin: []byte("{junk")}).Error(t)
	n.Run(t, "ADD", "", ask(nil, nil)).Error(t)
	n.Run(t, "ADD", "c1", guardtest.Opts{Stdin: []byte("{}")}).Error(t)
	if lines := n.Log(t); len(lines) != 3 {
		t.Errorf("logged %v", lines)
	}
}
