package telemetry_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap/zapcore"

	"github.com/ipam-guard/ipam-guard/pkg/telemetry"
)

func failedDel() telemetry.Line {
	return telemetry.Line{
		Time:  time.Date(2026, 3, 1, 13, 14, 15, 123456000, time.FixedZone("", 3600)),
		Level: zapcore.ErrorLevel, Msg: "not released",
		Verb: "DEL", Network: "net1", Container: "cafe", IfName: "eth0", Position: "ipam", Delegate: "host-local",
		Lock: "/run/ipam-guard/delegate-host-local.lock", LockWait: 1500 * time.Millisecond,
		Attempts: []telemetry.Attempt{
			{N: 1, Kind: "timeout", Took: 20 * time.Second, Exit: -1},
			{N: 2, Kind: "error", Code: 999, Exit: 1, Took: 42*time.Millisecond + 900*time.Microsecond, Verb: "ADD"},
		},
		Verdict: "fail", Rule: "transient", Total: 21750 * time.Millisecond,
		TraceID: "0af7651916cd43dd8448eb211c80319c", Version: "v1.2.3",
		Warnings: []string{"retry.attempts: 99 is out of range"},
		Error:    "pod \"x\" not found\n<tail>",
	}
}

func TestLineKeysAndOrder(t *testing.T) {
	log, stderr := newLog(t)
	log.Write(failedDel())
	log.Write(telemetry.Line{Level: zapcore.InfoLevel})

	want := `{"ts":"2026-03-01T12:14:15.123456Z","level":"error","msg":"not released","verb":"DEL",` +
		`"network":"net1","container":"cafe","ifname":"eth0","position":"ipam","delegate":"host-local",` +
		`"lock":"/run/ipam-guard/delegate-host-local.lock","lock_wait_ms":1500,"attempts":[` +
		`{"n":1,"kind":"timeout","code":0,"exit":-1,"ms":20000},` +
		`{"n":2,"verb":"ADD","kind":"error","code":999,"exit":1,"ms":42}],` +
		`"verdict":"fail","rule":"transient","total_ms":21750,` +
		`"trace_id":"0af7651916cd43dd8448eb211c80319c","version":"v1.2.3",` +
		`"warnings":["retry.attempts: 99 is out of range"],"error":"pod \"x\" not found\n<tail>"}` + "\n" +
		`{"ts":"0001-01-01T00:00:00Z","level":"info","msg":"","verb":"","lock_wait_ms":0,"attempts":[],"total_ms":0}` + "\n"
	if diff := cmp.Diff(want, read(t, log.File)); diff != "" {
		t.Errorf("log file (-want +got):\n%s", diff)
	}
	// The delegate's own words are in the file, so stderr stays without its "not found".
	want = "ipam-guard: error: DEL net1/cafe/eth0 host-local: not released (fail, rule transient)\n" +
		"ipam-guard: warn: DEL net1/cafe/eth0 host-local: retry.attempts: 99 is out of range\n"
	if diff := cmp.Diff(want, stderr.String()); diff != "" {
		t.Errorf("stderr (-want +got):\n%s", diff)
	}
	if info, err := os.Stat(log.File); err != nil || info.Mode().Perm()&^0o640 != 0 {
		t.Errorf("mode %v, %v: want 0640 at most", info.Mode(), err)
	}
}

func TestWithoutFileStderrTellsAll(t *testing.T) {
	var stderr bytes.Buffer
	telemetry.Log{Stderr: &stderr}.Write(telemetry.Line{
		Level: zapcore.ErrorLevel, Msg: "not\x1b[2J\nreleased", Verb: "DEL", Error: "two\nlines\u202e"})
	want := "ipam-guard: error: DEL: not [2J released: two lines \n"
	if got := stderr.String(); got != want {
		t.Errorf("stderr %q, want %q", got, want)
	}
	telemetry.Log{}.Write(failedDel()) // the zero value is usable
}

func TestLevels(t *testing.T) {
	const debug, info, warn, fail = zapcore.DebugLevel, zapcore.InfoLevel, zapcore.WarnLevel, zapcore.ErrorLevel
	for _, tt := range []struct {
		limit, level zapcore.Level
		warnings     []string
		logged       string // level in the file, "" for no line
		told         int    // lines on stderr
	}{
		{info, debug, nil, "", 0},
		{debug, debug, nil, "debug", 0},
		{info, info, nil, "info", 0},
		{info, warn, nil, "warn", 1},
		{info, fail, nil, "error", 1},
		{warn, info, nil, "", 0},
		{fail, warn, nil, "", 0},
		{info, debug, []string{"a"}, "warn", 1},
		{warn, info, []string{"a", "b"}, "warn", 2},
		{info, warn, []string{"a"}, "warn", 2},
		{info, fail, []string{"a"}, "error", 2},
		{fail, info, []string{"a"}, "", 0},
	} {
		t.Run(fmt.Sprintf("%v at %v with %d warnings", tt.level, tt.limit, len(tt.warnings)), func(t *testing.T) {
			log, stderr := newLog(t)
			log.Level = tt.limit
			log.Write(telemetry.Line{Level: tt.level, Warnings: tt.warnings})
			var got string
			for _, line := range decode(t, log.File) {
				got += line.Level
			}
			if told := strings.Count(stderr.String(), "\n"); got != tt.logged || told != tt.told {
				t.Errorf("level in the file %q, lines on stderr %d; want %q, %d", got, told, tt.logged, tt.told)
			}
		})
	}
}

func TestLongTextsAreCut(t *testing.T) {
	log, stderr := newLog(t)
	long := strings.Repeat("é", 1<<16)
	line := telemetry.Line{Level: zapcore.WarnLevel, Msg: long, Error: "a" + long, Verdict: strings.Repeat("\x80", 1<<16)}
	for range 1000 {
		line.Warnings = append(line.Warnings, long)
		line.Attempts = append(line.Attempts, telemetry.Attempt{N: len(line.Attempts) + 1})
	}
	log.Write(line)
	text := read(t, log.File)
	if len(text) > 256<<10 || stderr.Len() > 256<<10 {
		t.Errorf("%d bytes in the file, %d on stderr", len(text), stderr.Len())
	}
	got := decode(t, log.File)[0]
	for _, s := range []string{got.Msg, got.Error, got.Warnings[0]} {
		if len(s) < 4000 || len(s) > 4200 || !strings.HasSuffix(s, "…") || strings.ContainsRune(s, utf8.RuneError) {
			t.Errorf("cut to %d bytes ending in %q", len(s), s[len(s)-8:])
		}
	}
	if last := got.Warnings[len(got.Warnings)-1]; last != "and 968 more" {
		t.Errorf("last warning %q", last)
	}
	if first, last := got.Attempts[0].N, got.Attempts[len(got.Attempts)-1].N; first != 937 || last != 1000 {
		t.Errorf("attempts %d to %d, want the last 64", first, last)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("closed") }

func TestBrokenStderrChangesNothing(t *testing.T) {
	log, _ := newLog(t)
	log.Stderr = brokenWriter{}
	log.Write(failedDel())
	if got := decode(t, log.File); len(got) != 1 {
		t.Errorf("%d lines, want 1", len(got))
	}
}

// newLog returns a log in a folder that doesn't exist yet.
func newLog(t testing.TB) (telemetry.Log, *bytes.Buffer) {
	t.Helper()
	stderr := new(bytes.Buffer)
	return telemetry.Log{File: filepath.Join(t.TempDir(), "log", "guard", "guard.log"), Stderr: stderr, Stdout: os.Stdout}, stderr
}

type logged struct {
	Level, Msg, Container, Error string
	Warnings                     []string
	Attempts                     []struct{ N int }
}

// decode returns the lines of the file, each of which must be whole.
func decode(t testing.TB, path string) (lines []logged) {
	t.Helper()
	for text := range strings.Lines(read(t, path)) {
		var line logged
		if err := json.Unmarshal([]byte(text), &line); err != nil || !strings.HasSuffix(text, "}\n") {
			t.Fatalf("%s: line %.200q: %v", path, text, err)
		}
		lines = append(lines, line)
	}
	return lines
}

// read returns the file's content, "" if it isn't there.
func read(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(text)
}

func BenchmarkWrite(b *testing.B) {
	log, _ := newLog(b)
	line := failedDel()
	line.Level, line.Warnings = zapcore.InfoLevel, nil
	b.ReportAllocs()
	for b.Loop() {
		log.Write(line)
	}
}
