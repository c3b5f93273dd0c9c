// Package telemetry leaves one line per invocation in the log.
//
// It promises that a log never fails an operation and never holds one up:
// whatever is wrong with the file (a folder that can't be written, a full disk,
// a FIFO, a path that turns out to be stdout) becomes one warning on stderr.
// Each line is one write to a file opened for appending, so that any number of
// processes share the file without a lock, and rotation keeps every line but
// those that fall off its end. That holds on local file systems; NFS has no
// atomic append.
//
// To its caller it leaves the clock, the choice of level and words, the verdict
// on bad settings (CheckFile says what is wrong with a path), and SIGPIPE: a
// closed stderr must not kill the process. A caller unlocks and answers before
// it logs: a runtime that gets no answer reads stderr instead.
package telemetry

import (
	"io"
	"os"
	"time"

	"go.uber.org/zap/zapcore"
)

// Attempt is one run of the delegate. Took is logged in milliseconds.
type Attempt struct {
	N    int
	Kind string
	Code uint
	Exit int
	Took time.Duration
	Verb string // only where it differs from the invocation's: a rollback's DEL
}

// Line is what one invocation leaves in the log.
type Line struct {
	Time  time.Time
	Level zapcore.Level
	Msg   string

	Verb, Network, Container, IfName, Position, Delegate string

	Lock     string // path of the lock file
	LockWait time.Duration
	Attempts []Attempt
	Replays  []string // records that were released besides, or tried: attachment and kind of outcome

	Verdict, Rule string
	Total         time.Duration

	TraceID, Version string

	// Warnings raise Level to at least warn. Write prints them: the caller
	// must not have done so.
	Warnings []string
	// Error is what the delegate said in its own words: where an answer was
	// reworded for the runtime, the original is here.
	Error string
}

// Log says where lines go. The zero value keeps no file and prints nothing.
type Log struct {
	File    string        // absolute path; "" for none
	Level   zapcore.Level // lines below it are dropped
	MaxSize int64         // bytes; 0: the file is never rotated
	Keep    int           // rotated files kept as File.1 (newest) to File.Keep
	Stderr  io.Writer     // warnings and errors, for people; nil for none
	Stdout  Stater        // never written to: File must not turn out to be it; nil if there is none
}

// Stater is an open file that tells which one it is.
type Stater interface{ Stat() (os.FileInfo, error) }

// Write puts the line into the file and, if it is a warning or an error, a
// short form of it on Stderr. It never fails: a problem with the file is told on
// Stderr, a problem with Stderr is nobody's.
func (l Log) Write(line Line) {
	own := line.Level
	if len(line.Warnings) > 0 {
		line.Level = max(line.Level, zapcore.WarnLevel)
	}
	if line.Level < l.Level {
		return
	}
	problem := l.toFile(line)

	var n notice
	if own >= zapcore.WarnLevel {
		n.summary(line, own, l.File == "" || problem != nil)
	}
	n.warnings(line)
	n.problem(l.File, problem)
	if l.Stderr != nil && len(n.text) > 0 {
		_, _ = l.Stderr.Write(n.text)
	}
}
