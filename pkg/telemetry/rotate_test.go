package telemetry_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gofrs/flock"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"

	"github.com/ipam-guard/ipam-guard/pkg/telemetry"
)

func TestManyProcessesLoseNothing(t *testing.T) {
	// Case 49: size-capped, and processes that rotate at once lose no line
	// (tigera operator #2402).
	const processes, lines, maxSize = 8, 2000, 16 << 10
	file := filepath.Join(t.TempDir(), "guard.log")
	var children []child
	for i := range processes {
		children = append(children, child{ID: strconv.Itoa(i), Lines: lines, File: file, MaxSize: maxSize, Keep: 10000})
	}
	if told := together(t, children...); told != "" {
		t.Errorf("stderr: %.2000s", told)
	}

	seen := make(map[string]int)
	files := rotated(t, file)
	longest := 0
	for _, path := range append(files, file) {
		for _, line := range decode(t, path) {
			seen[line.Container+"/"+line.Msg]++
		}
		for text := range strings.Lines(read(t, path)) {
			longest = max(longest, len(text))
		}
	}
	for i := range processes {
		for n := range lines {
			if key := fmt.Sprintf("%d/%d", i, n); seen[key] != 1 {
				t.Errorf("line %s is there %d times", key, seen[key])
			}
		}
	}
	if len(files) < 10 || len(seen) != processes*lines {
		t.Errorf("%d files with %d lines", len(files), len(seen))
	}
	// Only a full file is renamed: nobody moved one away that another had just begun.
	for _, path := range files {
		if size := len(read(t, path)); size <= maxSize-longest {
			t.Errorf("%s was rotated with %d bytes", path, size)
		}
	}
	t.Logf("%d lines in %d files", len(seen), len(files)+1)
}

func TestTwoRotatorsRenameOnce(t *testing.T) {
	// Case 49: two processes that find the same full file.
	for range 10 {
		file := filepath.Join(t.TempDir(), "guard.log")
		old := strings.Repeat("{}\n", 400)
		write(t, file, old)
		told := together(t, child{ID: "a", Lines: 1, File: file, MaxSize: 1000, Keep: 9}, child{ID: "b", Lines: 1, File: file, MaxSize: 1000, Keep: 9})
		files := rotated(t, file)
		if told != "" || len(files) != 1 || !strings.HasPrefix(read(t, file+".1"), old) {
			t.Fatalf("rotated to %v, stderr %q", files, told)
		}
		// Whoever found the lock taken may have written to the old file.
		if n := len(decode(t, file)) + len(decode(t, file+".1")); n != 402 {
			t.Fatalf("%d lines, want 402", n)
		}
	}
}

func TestBusyLockIsNotWaitedFor(t *testing.T) {
	log, stderr := newLog(t)
	log.MaxSize, log.Keep = 1, 3
	say(log, "first")
	holder := flock.New(log.File + ".lock")
	if ok, err := holder.TryLock(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	say(log, "second")
	wantFiles(t, log.File, "first second")
	if err := holder.Unlock(); err != nil {
		t.Fatal(err)
	}
	say(log, "third")
	wantFiles(t, log.File, "third", "first second")
	if stderr.Len() > 0 {
		t.Errorf("stderr: %s", stderr)
	}
}

func TestLockThatIsNoFile(t *testing.T) {
	log, _ := newLog(t)
	say(log, "first")
	if err := unix.Mkfifo(log.File+".lock", 0o600); err != nil {
		t.Fatal(err)
	}
	log.MaxSize, log.Keep = 1, 1
	writeInTime(t, log)
	if got := len(decode(t, log.File)) + len(decode(t, log.File+".1")); got != 2 {
		t.Errorf("%d lines, want 2", got)
	}
}

func TestKeep(t *testing.T) {
	for _, tt := range []struct {
		name    string
		maxSize int64
		keep    int
		want    []string // File, File.1, ...
	}{
		{"never rotated", 0, 2, []string{"a b c d e"}},
		{"one", 1, 1, []string{"e", "d"}},
		{"three", 1, 3, []string{"e", "d", "c", "b"}},
		{"more than there are", 1, 9, []string{"e", "d", "c", "b", "a"}},
		{"none", 1, 0, []string{"e"}},
		{"two lines a file", 250, 9, []string{"e", "c d", "a b"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			log, stderr := newLog(t)
			log.MaxSize, log.Keep = tt.maxSize, tt.keep
			for _, msg := range strings.Fields("a b c d e") {
				say(log, msg)
			}
			wantFiles(t, log.File, tt.want...)
			if stderr.Len() > 0 {
				t.Errorf("stderr: %s", stderr)
			}
		})
	}
}

func TestFilesStayBelowMaxSize(t *testing.T) {
	log, _ := newLog(t)
	log.MaxSize, log.Keep = 1000, 100
	for i := range 100 {
		say(log, strings.Repeat("x", i))
	}
	for _, path := range append(rotated(t, log.File), log.File) {
		if size := len(read(t, path)); size > 1000 || size == 0 {
			t.Errorf("%s has %d bytes", path, size)
		}
	}
}

func TestRotationFillsTheFirstGap(t *testing.T) {
	// A rotation that died half way leaves a gap.
	log, _ := newLog(t)
	log.MaxSize, log.Keep = 1, 3
	say(log, "new")
	write(t, log.File+".1", `{"msg":"1"}`+"\n")
	write(t, log.File+".3", `{"msg":"3"}`+"\n")
	say(log, "newest")
	wantFiles(t, log.File, "newest", "new", "1", "3")
}

func TestRotationFollowsTheLink(t *testing.T) {
	log, stderr := newLog(t)
	log.MaxSize, log.Keep = 1, 2
	target := filepath.Join(t.TempDir(), "real.log")
	log.File = linked(t, os.Symlink, target)
	for _, msg := range strings.Fields("a b c") {
		say(log, msg)
	}
	wantFiles(t, target, "c", "b", "a")
	if at, err := os.Readlink(log.File); err != nil || at != target || len(rotated(t, log.File)) > 0 {
		t.Errorf("the link points to %q (%v), beside it: %v", at, err, rotated(t, log.File))
	}
	if stderr.Len() > 0 {
		t.Errorf("stderr: %s", stderr)
	}
}

func TestRotationThatCannotRename(t *testing.T) {
	log, stderr := newLog(t)
	log.MaxSize, log.Keep = 1, 1
	say(log, "a")
	if err := os.MkdirAll(log.File+".1/sub", 0o755); err != nil {
		t.Fatal(err)
	}
	say(log, "b")
	wantFiles(t, log.File, "a b")
	wantOneWarning(t, stderr.String(), "rotate: rename")
}

func say(log telemetry.Log, msg string) {
	log.Write(telemetry.Line{Level: zapcore.InfoLevel, Msg: msg, Verb: "DEL"})
}

// wantFiles compares the messages in File, File.1, ..., and that there are no more.
func wantFiles(t *testing.T, file string, want ...string) {
	t.Helper()
	for i, want := range append(want, "") {
		path := file
		if i > 0 {
			path += "." + strconv.Itoa(i)
		}
		info, err := os.Stat(path)
		if err == nil && info.IsDir() {
			continue
		}
		var msgs []string
		for _, line := range decode(t, path) {
			msgs = append(msgs, line.Msg)
		}
		if got := strings.Join(msgs, " "); got != want {
			t.Errorf("%s: messages %q, want %q", filepath.Base(path), got, want)
		}
	}
}

// rotated returns the numbered files, in no order that matters.
func rotated(t *testing.T, file string) []string {
	t.Helper()
	files, err := filepath.Glob(file + ".[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
