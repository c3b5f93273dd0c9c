// Package chain does one invocation of the guard from end to end: netconf in,
// result or error out.
//
// It promises what a runtime relies on. Waiting for the host lock never takes
// from the delegate's time: the clock starts when the lock is held, and an
// attempt, once started, has its whole timeout. A failed ADD leaves nothing
// behind: it is rolled back under the same lock, and its own error comes first.
// A failed DEL is tried again as the policy says. stdout carries exactly one
// JSON document or nothing, whatever happens.
//
// What it leaves to others: bytes to conflist, the lock to hostlock, running
// processes to delegate, the decision about a failure to policy, the log to
// telemetry. The environment, the signals and the exit are cmd/'s.
package chain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap/zapcore"

	"github.com/ipam-guard/ipam-guard/pkg/journal"
	"github.com/ipam-guard/ipam-guard/pkg/telemetry"
)

// Call is one invocation: all that the guard gets from its caller.
type Call struct {
	Start    time.Time // when the process began; deadlines count from here
	Name     string    // the file that it was called as, os.Args[0]; "" for ipam-guard
	Env      []string  // as os.Environ gives it
	Stdin    io.Reader
	Stdout   Output                 // the result or the error; nothing else is written here
	Stderr   io.Writer              // like Stdout, it must not end the process if its reader is gone
	NodeFile string                 // the administrator's settings for the node
	Parent   func() int             // the parent's process id, now
	Random   func() float64         // in [0,1), for the jitter between attempts
	Version  string                 // the guard's own
	Self     func() (string, error) // the guard's own file; asked for only where a recorded delegate is gone
}

// Output is stdout. A write whose reader is gone returns an error; that of an
// *os.File ends the process.
type Output interface {
	io.Writer
	Stat() (os.FileInfo, error)
}

// operation is a Call that is being done.
type operation struct {
	Call
	verb, container, netns, ifname, path string

	conf     *netconf
	netconf  []byte // what the delegate gets on stdin
	binary   string // the delegate's path; "" if there is none, see missing
	missing  error
	other    []byte // what it gets if the first failed; nil: nothing else
	lockPath string // "" for none
	parent   int

	journal    *journal.Journal
	entry      *journal.Entry // the record of this attachment, locked; nil without one
	before     before         // what an ADD found
	unrecorded error          // why there is no record
	unreadable *Error         // why stdin is no use: a DEL goes by its record
	plainly    bool           // run the delegate as if the guard weren't there
	asked      *Confirm       // what the DEL that runs has to show
	ends       time.Time      // when the caller's deadline is over, for a replay; zero: by the settings

	line    telemetry.Line
	printed bool
}

// answer is what the caller gets: a document on stdout and an exit status.
type answer struct {
	out  []byte // the delegate's result, byte for byte
	err  *Error // or the error
	exit int
}

func failure(err *Error) answer { return answer{err: err, exit: 1} }

// Run does the invocation and returns the exit status. When ctx is done, a
// delegate that runs is stopped and the operation ends with an error.
func (c Call) Run(ctx context.Context) (exit int) {
	op := &operation{Call: c, parent: c.Parent()}
	op.readEnv()
	op.line = telemetry.Line{
		Verb: op.verb, Container: op.container, IfName: op.ifname,
		Version: c.Version, TraceID: telemetry.TraceID(op.env("TRACEPARENT")),
	}
	op.conf = &netconf{version: withoutCNIVersion, settings: builtin()}
	defer func() {
		if r := recover(); r != nil {
			op.line.Error = fmt.Sprintf("panic: %v\n%s", r, debug.Stack())
			if op.conf.top.Doc == nil {
				op.conf.settings, _ = settingsFor("", op.NodeFile, nil) // where to log
			}
			exit = op.finish(failure(newError(codeInternal, fmt.Sprintf("ipam-guard: internal error: %v", r), "please report this; the stack is in the log")))
		}
	}()
	ans := op.do(ctx)
	if ans.err == nil && op.verb == "ADD" {
		return op.deliver(ctx, ans)
	}
	return op.finish(ans)
}

// do finds out what is to be done, and does it.
func (op *operation) do(ctx context.Context) answer {
	if op.verb == "VERSION" {
		return op.version(ctx)
	}
	if err := op.checkEnv(); err != nil {
		op.conf.settings, _ = settingsFor("", op.NodeFile, nil) // where to log
		return failure(err)
	}
	if err := op.prepare(); err != nil {
		if op.verb != "DEL" || op.journal == nil {
			return failure(err)
		}
		op.unreadable = err
	}
	if op.below() || op.conf.settings.Mode == "bypass" {
		return op.passThrough(ctx)
	}
	switch op.verb {
	case "ADD":
		return op.add(ctx)
	case "DEL":
		return op.del(ctx)
	case "CHECK":
		return op.check(ctx)
	case "STATUS":
		return op.status(ctx)
	}
	return op.gc(ctx)
}

// prepare does everything that can be done before the lock is taken.
func (op *operation) prepare() *Error {
	stdin, err := readAll(op.Stdin)
	if err != nil {
		return newError(codeIO, fmt.Sprintf("the network configuration can't be read from stdin: %v", err), "")
	}
	conf, fatal := readNetconf(stdin, op.NodeFile, op.role())
	op.conf = conf
	op.line.Network, op.line.Delegate, op.line.Position = conf.name, conf.typ, string(conf.position)
	op.journal = &journal.Journal{Dir: conf.settings.StateDir}
	if fatal != nil {
		return fatal
	}
	if err := op.refuse(); err != nil {
		return err
	}
	op.netconf = conf.forDelegate()
	op.binary, op.missing = op.find()
	op.lockPath = op.chooseLock()
	return nil
}

// readAll is io.ReadAll with a buffer that most netconfs fit into.
func readAll(r io.Reader) ([]byte, error) {
	b := make([]byte, 0, 4096)
	for {
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if errors.Is(err, io.EOF) {
			return b, nil
		}
		if err != nil {
			return b, err
		}
		b = slices.Grow(b, 1)
	}
}

// refuse says no to a configuration that is wrong, where saying no loses
// nothing: ADD and CHECK. A DEL or GC that was refused would lose an address, a
// STATUS the node's running pods: those go on with what is left and say so.
func (op *operation) refuse() *Error {
	strict := (op.verb == "ADD" || op.verb == "CHECK") && op.conf.settings.Mode != "bypass"
	if strict && len(op.conf.problems) > 0 {
		return refusal(op.conf.problems)
	}
	for _, p := range op.conf.problems {
		op.warn(p.String() + "; going on with what is built in")
	}
	if op.verb == "DEL" || op.conf.settings.Mode == "bypass" || op.conf.position == shadowPosition {
		return nil
	}
	return op.conf.checkVersion(op.verb)
}

// refusal names the first problem, and the others in its details.
func refusal(problems []Problem) *Error {
	var more []string
	for _, p := range problems[1:] {
		more = append(more, p.String())
	}
	return newError(codeConfig, problems[0].String(), strings.Join(more, "; "))
}

// warn notes something for the log that the caller need not be told.
func (op *operation) warn(text string) { op.line.Warnings = append(op.line.Warnings, text) }

// deliver prints the result of a good ADD. If nobody is there to take it, the
// pod won't run, and its address is given back.
func (op *operation) deliver(ctx context.Context, ans answer) int {
	err := op.print(ans.out)
	if err == nil {
		return op.finish(ans)
	}
	ans = failure(op.undo(ctx, err))
	return op.finish(ans)
}

var errOrphaned = errors.New("the caller is gone: this process has another parent now")

// print writes the one document that stdout carries.
func (op *operation) print(document []byte) error {
	if op.Parent() != op.parent {
		return errOrphaned
	}
	op.printed = true
	_, err := op.Stdout.Write(document)
	return err
}

// finish answers the caller and writes the log.
func (op *operation) finish(ans answer) int {
	op.leave()
	switch {
	case op.printed:
	case ans.err != nil:
		op.printed = true
		_, _ = op.Stdout.Write(encode(ans.err, op.conf.version))
	case len(ans.out) > 0:
		op.printed = true
		_, _ = op.Stdout.Write(ans.out)
	}
	op.log(ans)
	return ans.exit
}

// log writes the invocation's one line. Whatever happens to it, the caller has
// its answer.
func (op *operation) log(ans answer) {
	defer func() { _ = recover() }()
	l := &op.line
	l.Time, l.Total, l.Level, l.Msg = time.Now(), time.Since(op.Start), zapcore.InfoLevel, "done"
	if ans.err != nil {
		l.Level, l.Msg = zapcore.ErrorLevel, ans.err.Error()
	} else if op.verb == "VERSION" || op.verb == "CHECK" || op.verb == "STATUS" {
		l.Level = zapcore.DebugLevel
	}
	s := op.conf.settings.Log
	telemetry.Log{
		File: s.File, Level: s.Level, MaxSize: s.MaxSize, Keep: s.Keep,
		Stderr: op.Stderr, Stdout: op.Stdout,
	}.Write(*l)
}
