package delegate_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipam-guard/ipam-guard/pkg/delegate"
)

// Cases 29 and 38: any amount of stdout is taken without an error for the
// delegate, and without memory.
func TestStdoutFlood(t *testing.T) {
	for _, tt := range []struct {
		size int
		more bool
	}{{delegate.MaxResult, false}, {delegate.MaxResult + 1, true}, {10 << 20, true}, {200 << 20, true}} {
		r := runFlood(t, self(t, "flood", "TO=1", fmt.Sprint("FLOOD=", tt.size)))
		if string(r.Stderr) != "all written\n" {
			t.Errorf("%d: the delegate says %q", tt.size, r.Stderr)
		}
		if len(r.Stdout) != delegate.MaxResult || r.Truncated != tt.more {
			t.Errorf("%d: kept %d, truncated %v", tt.size, len(r.Stdout), r.Truncated)
		}
	}
}

// The same holds for stderr, if nobody reads it too.
func TestStderrFlood(t *testing.T) {
	for name, w := range map[string]io.Writer{
		"nowhere": nil,
		"stuck":   writerFunc(func(p []byte) (int, error) { <-t.Context().Done(); return len(p), nil }),
	} {
		cmd := self(t, "flood", "TO=2", fmt.Sprint("FLOOD=", 50<<20))
		cmd.Stderr = w
		r := runFlood(t, cmd)
		if len(r.Stderr) != 64<<10 || !bytes.HasSuffix(r.Stderr, []byte("xall written\n")) {
			t.Errorf("%s: kept %d bytes of stderr, and not the end", name, len(r.Stderr))
		}
	}
}

// runFlood holds a run to little memory: allocated in all, also what was
// collected since.
func runFlood(t *testing.T, cmd delegate.Cmd) delegate.Run {
	t.Helper()
	cmd.Timeout = 2 * time.Minute
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r := run(t, cmd)
	runtime.ReadMemStats(&after)
	wantExit(t, r, 0)
	if used := after.TotalAlloc - before.TotalAlloc; used > 16<<20 {
		t.Errorf("%d bytes of memory", used)
	}
	return r
}

// What the delegate has left in its pipe at its end belongs to the result.
func TestResultIsWhole(t *testing.T) {
	cmd := self(t, "burst")
	cmd.Started = func(pid int) {
		_ = unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
	}
	r := run(t, cmd)
	wantExit(t, r, 0)
	if len(r.Stdout) != 200<<10 {
		t.Errorf("got %d of %d bytes", len(r.Stdout), 200<<10)
	}
}

func TestStderrKeepsTheEnd(t *testing.T) {
	for _, lines := range []int{0, 1, 9000, 300000} {
		cmd := script(t, fmt.Sprintf("seq %d >&2", lines))
		var passed bytes.Buffer
		cmd.Stderr = &passed
		r := run(t, cmd)
		wantExit(t, r, 0)
		var want strings.Builder
		for i := range lines {
			fmt.Fprintln(&want, i+1)
		}
		all := want.String()
		if end := all[max(0, len(all)-64<<10):]; string(r.Stderr) != end {
			t.Errorf("%d lines: kept %d bytes; want the last %d of %d", lines, len(r.Stderr), len(end), len(all))
		}
		// A writer that keeps up gets everything; a backlog may be cut short.
		if len(all) < 1<<20 && passed.String() != all {
			t.Errorf("%d lines: passed on %d bytes of %d", lines, passed.Len(), len(all))
		}
	}
}

// Passed on as it comes, not at the end.
func TestStderrIsPassedOnAtOnce(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	flag := t.TempDir() + "/seen"
	cmd := script(t, `echo early >&2; until [ -e `+flag+` ]; do sleep 0.01; done; echo late >&2`)
	var got bytes.Buffer
	cmd.Stderr = writerFunc(func(p []byte) (int, error) {
		got.Write(p)
		return len(p), os.WriteFile(flag, nil, 0o644)
	})
	wantExit(t, cmd.Run(ctx), 0)
	if got.String() != "early\nlate\n" {
		t.Errorf("passed on %q", got.String())
	}
}

func TestBadStderrWriterChangesNothing(t *testing.T) {
	cmd := script(t, `for i in 1 2 3; do echo $i >&2; sleep 0.05; done; echo ok`)
	var calls atomic.Int32
	for name, w := range map[string]io.Writer{
		"failing":   writerFunc(func([]byte) (int, error) { calls.Add(1); return 0, errors.New("disk full") }),
		"panicking": writerFunc(func([]byte) (int, error) { calls.Add(1); panic("no") }),
	} {
		calls.Store(0)
		cmd.Stderr = w
		r := run(t, cmd)
		wantExit(t, r, 0)
		if string(r.Stdout) != "ok\n" || string(r.Stderr) != "1\n2\n3\n" {
			t.Errorf("%s: stdout %q, stderr %q", name, r.Stdout, r.Stderr)
		}
		if n := calls.Load(); n != 1 {
			t.Errorf("%s: called %d times; once was enough to know", name, n)
		}
	}
}

// Our stderr is a full pipe that nobody reads: neither the clock nor the
// delegate stands still.
func TestStuckStderrChangesNothing(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = w.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
	for err = nil; err == nil; {
		_, err = w.Write(make([]byte, 4096)) // until it is full
	}
	if err := w.SetWriteDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	defer r.Close()

	cmd := script(t, `seq 500000 >&2; echo done`)
	cmd.Stderr, cmd.Timeout = w, time.Minute
	begin := time.Now()
	got := run(t, cmd)
	wantExit(t, got, 0)
	if string(got.Stdout) != "done\n" || !strings.HasSuffix(string(got.Stderr), "\n500000\n") {
		t.Errorf("stdout %q, stderr ends %q", got.Stdout, got.Stderr[max(0, len(got.Stderr)-20):])
	}
	if took := time.Since(begin); took > long {
		t.Errorf("took %v", took)
	}

	cmd = script(t, `echo hangs >&2; sleep 60`)
	cmd.Stderr, cmd.Timeout, cmd.Grace = w, 200*time.Millisecond, 200*time.Millisecond
	begin = time.Now()
	if got := run(t, cmd); got.End != delegate.TimedOut || time.Since(begin) > long {
		t.Errorf("%v after %v", got.End, time.Since(begin))
	}
}

func BenchmarkRun(b *testing.B) {
	cmd := delegate.Cmd{Path: "/bin/true", Stdin: make([]byte, 1024), Timeout: time.Minute}
	b.ReportAllocs()
	for b.Loop() {
		if r := cmd.Run(context.Background()); r.End != delegate.Exited || r.Exit != 0 {
			b.Fatal(r.End, r.Exit, r.Err)
		}
	}
}
