package chain_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipam-guard/ipam-guard/pkg/chain"
)

// panicker panics at whatever is done with it.
type panicker struct{}

func (panicker) Read([]byte) (int, error)  { panic("stdin is cursed") }
func (panicker) Write([]byte) (int, error) { panic("stderr is cursed") }

const answer = `#!/bin/sh
if [ "$CNI_COMMAND" = ADD ]; then echo '{"cniVersion":"1.0.0","ips":[{"address":"10.9.0.2/16"}]}'; exit 0; fi
echo '{"code":11,"msg":"busy"}'
exit 1
`

// invocation is a call of the guard before a delegate whose DEL always fails.
func invocation(t *testing.T, verb string) (c chain.Call, dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "fake"), []byte(answer), 0o755); err != nil {
		t.Fatal(err)
	}
	stdout, err := os.Create(filepath.Join(dir, "stdout"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stdout.Close() })
	folders := fmt.Sprintf(`{"lockDir": %q, "stateDir": %q, "log": {"file": %q}}`, dir, filepath.Join(dir, "state"), filepath.Join(dir, "log"))
	conf := `{"cniVersion":"1.0.0","name":"n","type":"bridge","ipam":{"type":"ipam-guard","delegate":{"type":"fake"}}}`
	return chain.Call{
		Start: time.Now(),
		Env: []string{
			"CNI_COMMAND=" + verb, "CNI_CONTAINERID=c1", "CNI_NETNS=/proc/self/ns/net", "CNI_IFNAME=eth0",
			"CNI_PATH=" + dir, "PATH=" + os.Getenv("PATH"),
		},
		Stdin: strings.NewReader(conf), Stdout: stdout, Stderr: io.Discard,
		NodeFile: nodeFile(t, `{"defaults": `+folders+`}`),
		Parent:   os.Getppid, Random: func() float64 { return 0 }, Version: "test", Self: os.Executable,
	}, dir
}

// Case 37, our own panic: whatever part of the guard panics, the caller gets
// one JSON error, and nobody is kept from the lock.
func TestPanic(t *testing.T) {
	t.Parallel()
	asked := 0
	tests := map[string]struct {
		verb string
		set  func(*chain.Call)
		says string
	}{
		"before the delegate": {"ADD", func(c *chain.Call) { c.Stdin = panicker{} }, "stdin is cursed"},
		"between attempts":    {"DEL", func(c *chain.Call) { c.Random = func() float64 { panic("dice are cursed") } }, "dice are cursed"},
		"before the result": {"ADD", func(c *chain.Call) {
			c.Parent = func() int {
				if asked++; asked > 1 {
					panic("family is cursed")
				}
				return 1
			}
		}, "family is cursed"},
		"in the log": {"DEL", func(c *chain.Call) { c.Stderr = panicker{} }, "busy"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, dir := invocation(t, tt.verb)
			tt.set(&c)
			if exit, escaped := run(t, c); exit != 1 || escaped != nil {
				t.Errorf("exit status %d, panic: %v", exit, escaped)
			}
			var e struct {
				Code uint
				Msg  string
			}
			text, err := os.ReadFile(filepath.Join(dir, "stdout"))
			if err == nil {
				err = json.Unmarshal(text, &e)
			}
			if err != nil || e.Code == 0 || !strings.Contains(e.Msg, tt.says) {
				t.Errorf("%v in %q, want an error with %q", err, text, tt.says)
			}
			if name != "in the log" {
				log, err := os.ReadFile(filepath.Join(dir, "log"))
				if err != nil || e.Code != 999 || !strings.Contains(string(log), "goroutine ") {
					t.Errorf("code %d, log %q, %v: want 999 and the stack", e.Code, log, err)
				}
			}
			wantUnlocked(t, filepath.Join(dir, "delegate-fake.lock"))
		})
	}
}

func run(t *testing.T, c chain.Call) (exit int, escaped any) {
	defer func() { escaped = recover() }()
	return c.Run(t.Context()), nil
}

func wantUnlocked(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return // never locked
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Errorf("%s: %v", path, err)
	}
}
