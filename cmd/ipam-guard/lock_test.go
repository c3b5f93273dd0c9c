package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ipam-guard/ipam-guard/internal/fakeipam/record"
	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// Case 1: the time in the queue is not the delegate's (calico #11824).
func TestWaitingIsNotTheDelegatesTime(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	lock := n.LockPath("delegate-fake")
	n.Run(t, "ADD", "c1", ask(nil, nil)).OK(t)
	n.SetScript(t, Script{"DEL": "sleep 200ms; free"})
	release := n.HoldLock(t, lock, time.Hour)
	p := n.Start(t, "DEL", "c1", ask(nil, Object{"timeout": "2s", "retry": Object{"attempts": 1}}))
	awaitQueue(t, p, lock)
	time.Sleep(2500 * time.Millisecond) // longer than the timeout
	released := record.Now()
	release()
	r := p.Wait(t).OK(t)
	if calls := n.Calls(t, "DEL"); len(calls) != 1 || calls[0].Start < released {
		t.Errorf("DELs of the delegate before the lock was free, or not one: %+v", calls)
	}
	if r.Took < 2700*time.Millisecond {
		t.Errorf("took %v", r.Took)
	}
	wantLeases(t, n)
}

// Case 1, second part: what ran out was the delegate's time, not the lock's.
func TestTimeoutAfterWaitingNamesTheDelegate(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	lock := n.LockPath("delegate-fake")
	release := n.HoldLock(t, lock, time.Hour)
	p := n.Start(t, "DEL", "c1", ask(Script{"DEL": "sleep 30s"}, Object{"timeout": "700ms", "retry": Object{"attempts": 1}}))
	awaitQueue(t, p, lock)
	time.Sleep(time.Second)
	release()
	r := p.Wait(t)
	e := r.Error(t)
	if e.Code != 11 || e.CNIVersion != "1.0.0" || r.Took < 1700*time.Millisecond {
		t.Errorf("have %+v after %v", e, r.Took)
	}
	has(t, e.Msg, "fake", "DEL", "container c1", "timeout of 700ms")
	hasNot(t, e.Msg, "lock")
	wantFree(t, lock)
}

// Case 3: a herd of DELs, none starves, and no trace of it afterwards
// (azure-container-networking #1359, #242).
func TestManyDELsAtOnce(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	const herd = 100
	o := ask(Script{"DEL": "sleep 10ms; free"}, Object{"deadline": "5m", "log": Object{"level": "debug"}})
	var wg sync.WaitGroup
	for i := range herd {
		p := n.Start(t, "DEL", fmt.Sprintf("c%d", i), o)
		wg.Go(func() {
			if r := p.Wait(t); r.RC != 0 {
				t.Errorf("c%d: %+v", i, r)
			}
		})
	}
	wg.Wait()
	n.NoOverlap(t)
	if have := len(n.Calls(t, "DEL")); have != herd {
		t.Errorf("%d DELs of the delegate", have)
	}
	n.Run(t, "ADD", "last", o).OK(t)
	if wait := lastLine(t, n)["lock_wait_ms"].(float64); wait > 1000 {
		t.Errorf("the ADD afterwards waited %v ms", wait)
	}
}

// Case 4: a lock that is never had (azure-container-networking #289, #186).
func TestLockNeverHad(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		version string
		guard   Object
	}{
		"ADD": {"0.3.1", Object{"timeout": Object{"add": "100ms", "del": "100ms"}, "deadline": Object{"add": "2600ms"}}},
		"DEL": {"0.4.0", Object{"timeout": Object{"del": "100ms"}, "deadline": Object{"del": "1500ms"}}},
		"GC":  {"1.1.0", Object{"timeout": Object{"gc": "100ms"}, "deadline": Object{"gc": "1500ms"}}},
	}
	for verb, tt := range tests {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			n := guardtest.New(t)
			holder := n.Start(t, "ADD", "holder", ask(Script{"ADD": "waitfile go"}, nil))
			n.AwaitCalls(t, "ADD", 1)
			o := ask(nil, tt.guard)
			o.Conf.Version, o.Conf.Top = tt.version, Object{"cni.dev/valid-attachments": []any{}}
			r := n.Run(t, verb, "c1", o)
			e := r.Error(t)
			if r.RC != 1 || e.Code != 11 || e.CNIVersion != tt.version || r.Took < 400*time.Millisecond {
				t.Errorf("have %+v after %v", e, r.Took)
			}
			has(t, e.Msg, verb, n.LockPath("delegate-fake"), fmt.Sprintf("pid %d", holder.Pid), `container "holder"`)
			m := regexp.MustCompile(`waited (\S+);`).FindStringSubmatch(e.Msg)
			if m == nil {
				t.Fatalf("no time waited in %q", e.Msg)
			}
			if d, err := time.ParseDuration(m[1]); err != nil || d <= 0 || d > r.Took {
				t.Errorf("waited %q of %v", m[1], r.Took)
			}
			if verb != "GC" {
				has(t, e.Msg, "container c1")
			}
			wantCalls(t, n, "ADD")
			n.Touch(t, "go")
			holder.Wait(t)
		})
	}
}

// The refusal of a short deadline says what would do: that has to do then.
func TestDeadlineOfJustTheNeed(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	o := ask(nil, Object{"timeout": "5s", "deadline": Object{"add": "12s", "del": "6s", "gc": "6s"}})
	o.Conf.Version, o.Conf.Top = "1.1.0", Object{"cni.dev/valid-attachments": []any{}}
	n.Run(t, "ADD", "c1", o).OK(t)
	n.Run(t, "DEL", "c1", o).OK(t)
	n.Run(t, "GC", "", o).OK(t)
	wantCalls(t, n, "ADD DEL GC")
}

// unusable are ways in which no lock file can be made: a folder for lockDir,
// and the user for whom it is closed.
func unusable(t *testing.T) map[string]func(n *guardtest.Node, o *guardtest.Opts) string {
	return map[string]func(n *guardtest.Node, o *guardtest.Opts) string{
		"a file in its way": func(n *guardtest.Node, _ *guardtest.Opts) string {
			file := filepath.Join(n.Dir, "file")
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return filepath.Join(file, "locks")
		},
		"read-only": func(n *guardtest.Node, o *guardtest.Opts) string {
			asNobody(t, n, o)
			dir := filepath.Join(n.Dir, "closed")
			if err := os.Mkdir(dir, 0o555); err != nil {
				t.Fatal(err)
			}
			return dir
		},
	}
}

// Case 5: the lock folder can't be made (calico cni-plugin #985).
func TestLockFolderThatCantBeMade(t *testing.T) {
	t.Parallel()
	for name, make := range unusable(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := guardtest.New(t)
			var o guardtest.Opts
			dir := make(n, &o)
			o.Conf.Guard = Object{"lockDir": dir}
			for _, verb := range []string{"ADD", "DEL"} {
				e := n.Run(t, verb, "c1", o).Error(t)
				if e.Code != 5 {
					t.Errorf("%s: %+v", verb, e)
				}
				has(t, e.Msg, verb, "container c1", dir+"/delegate-fake.lock")
			}
			wantCalls(t, n, "")

			o.Conf.Guard = Object{"lockDir": dir, "lock": Object{"onUnavailable": "proceed"}}
			o.Conf.Script = Script{"ADD": "alloc", "DEL": fail(101, "mine", "own")}
			r := n.Run(t, "ADD", "c1", o).OK(t)
			if have := strings.Count(r.Stderr, "going on without the lock"); have != 1 {
				t.Errorf("%d warnings on stderr: %s", have, r.Stderr)
			}
			if w := strings.Join(warnings(lastLine(t, n)), "\n"); strings.Count(w, dir+"/delegate-fake.lock can't be used") != 1 {
				t.Errorf("warnings in the log: %s", w)
			}
			if e := n.Run(t, "DEL", "c1", o).Error(t); e.Code != 101 || e.Msg != "mine" || !strings.HasPrefix(e.Details, "own") {
				t.Errorf("have %+v", e)
			}
			wantCalls(t, n, "DEL ADD DEL") // the first of what the refused DEL left to be done
		})
	}
}

// Case 6: where the lock can't be had, a GC releases nothing (antrea #8272).
func TestGCWithoutALock(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"fail", "proceed"} {
		n := guardtest.New(t)
		if err := os.MkdirAll(n.LockPath("delegate-fake"), 0o755); err != nil {
			t.Fatal(err)
		}
		n.Run(t, "ADD", "c1", bare(n, nil)).OK(t)
		o := ask(Script{"GC": "gc"}, Object{"lock": Object{"onUnavailable": how}})
		o.Conf.Version, o.Conf.Top = "1.1.0", Object{"cni.dev/valid-attachments": []any{}}
		e := n.Run(t, "GC", "", o).Error(t)
		has(t, e.Msg, n.LockPath("delegate-fake"), "is a directory")
		wantCalls(t, n, "ADD")
		wantLeases(t, n, "c1/eth0")
	}
}

// Case 7: whatever lies there already (azure-container-networking #364, #464,
// #762).
func TestLockFileThereAlready(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	path := n.LockPath("delegate-fake")
	if err := os.MkdirAll(n.LockDir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"empty": "", "a dead pid": `{"pid":4194303,"pgid":4194303}`, "pid 1": `{"pid":1,"pgid":1}`, "bare pid": "1\n", "junk": "{\x00",
	} {
		for _, mode := range []os.FileMode{0o644, 0o444} {
			_ = os.Remove(path)
			if err := os.WriteFile(path, []byte(content), mode); err != nil {
				t.Fatal(err)
			}
			for _, verb := range []string{"ADD", "DEL"} {
				if r := n.Run(t, verb, "c1", ask(nil, nil)); r.RC != 0 {
					t.Errorf("%s, mode %o: %s: %+v", name, mode, verb, r)
				}
			}
			if calls := n.Calls(t); !slices.Equal(inherited(calls[len(calls)-1]), []string{path}) {
				t.Errorf("%s, mode %o: the delegate ran without the lock", name, mode)
			}
		}
	}
	wantLeases(t, n)
}

// Case 8: a lock that isn't for this caller, and one that leads elsewhere
// (podman #13402, antrea #4604, cri-o #528).
func TestLockThatIsNotForUs(t *testing.T) {
	t.Parallel()
	n := guardtest.New(t)
	var o guardtest.Opts
	asNobody(t, n, &o)
	if err := os.Mkdir(n.LockDir, 0o000); err != nil {
		t.Fatal(err)
	}
	e := n.Run(t, "ADD", "c1", o).Error(t)
	has(t, e.Msg, n.LockPath("delegate-fake"), "permission denied")

	n = guardtest.New(t)
	target := filepath.Join(n.Dir, "elsewhere")
	if err := os.Mkdir(n.LockDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, n.LockPath("delegate-fake")); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"ADD", "DEL"} {
		e = n.Run(t, verb, "c1", ask(nil, nil)).Error(t)
		has(t, e.Msg, n.LockPath("delegate-fake"), "too many levels of symbolic links")
	}
	if _, err := os.Lstat(target); err == nil {
		t.Error("the link was followed")
	}
	wantCalls(t, n, "")
}
