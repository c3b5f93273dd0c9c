package chain

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ipam-guard/ipam-guard/pkg/conflist"
	"github.com/ipam-guard/ipam-guard/pkg/delegate"
	"github.com/ipam-guard/ipam-guard/pkg/policy"
	"github.com/ipam-guard/ipam-guard/pkg/telemetry"
)

// result is a run of the delegate, judged.
type result struct {
	policy.Outcome
	err         *Error // nil if all went well
	out         []byte // the delegate's stdout
	started     bool   // it ran: an ADD may have allocated something
	interrupted bool   // the guard was told to stop
	alive       bool   // it could not be killed
	exit        int    // its exit status
	stderr      []byte // what it wrote there
}

// judge turns a run into an outcome.
func (op *operation) judge(verb string, n int, run delegate.Run) result {
	r := result{out: run.Stdout, started: run.End != delegate.NotStarted, interrupted: run.End == delegate.Interrupted, alive: run.Alive, exit: run.Exit, stderr: run.Stderr}
	r.Outcome = policy.Outcome{Verb: verb, Delegate: op.conf.typ, Stderr: string(run.Stderr), Attempt: n}
	r.Kind, r.err = op.kindOf(verb, run)
	if r.err != nil {
		if r.Kind != policy.Error {
			r.err.Details = withStderr(r.err.Details, run.Stderr)
		}
		r.Code, r.Message = r.err.Code, r.err.Error()
	}
	op.note(verb, r, run)
	return r
}

// note adds a run to the log line, or that there was none to be had.
func (op *operation) note(verb string, r result, run delegate.Run) {
	a := telemetry.Attempt{N: len(op.line.Attempts) + 1, Kind: string(r.Kind), Code: r.Code, Exit: run.Exit, Took: run.Took}
	if verb != op.verb {
		a.Verb = verb
	}
	op.line.Attempts = append(op.line.Attempts, a)
}

func (op *operation) kindOf(verb string, run delegate.Run) (policy.Kind, *Error) {
	if run.End == delegate.Exited && run.Exit == 0 {
		return op.kindOfSuccess(verb, run)
	}
	return op.kindOfFailure(verb, run)
}

// kindOfSuccess judges a run that ended with exit status 0.
func (op *operation) kindOfSuccess(verb string, run delegate.Run) (policy.Kind, *Error) {
	if op.asked != nil {
		if why := op.asked.missing(run); why != "" {
			return policy.Unconfirmed, newError(codeTryAgain, fmt.Sprintf("%s: exit status 0, but %s: its address may still be taken", op.what(verb), why), "")
		}
	}
	if verb != "ADD" {
		return policy.OK, nil
	}
	err := checkResult(run, op.conf.version, op.conf.position)
	if err == nil {
		return policy.OK, nil
	}
	return policy.Protocol, newError(codeInternal, fmt.Sprintf("%s: exit status 0, but %v", op.what(verb), err), "")
}

// what names a run of the delegate, for people.
func (op *operation) what(verb string) string {
	return fmt.Sprintf("%s: %s of %s", op.conf.typ, verb, op.attachment())
}

func (op *operation) kindOfFailure(verb string, run delegate.Run) (policy.Kind, *Error) {
	what, took := op.what(verb), rounded(run.Took)
	again := func(format string, args ...any) *Error {
		return newError(codeTryAgain, what+" "+fmt.Sprintf(format, args...), "")
	}
	switch run.End {
	case delegate.NotStarted:
		return notStarted(what, run.Err)
	case delegate.TimedOut:
		err := again("did not end within its timeout of %s", op.conf.settings.Timeout.Of(verb))
		err.Details = fmt.Sprintf("stopped by ipam-guard after %s; raise timeout.%s if it needs longer", took, strings.ToLower(verb))
		return policy.Timeout, err
	case delegate.Interrupted:
		return policy.Killed, again("was interrupted after %s: ipam-guard was told to stop", took)
	case delegate.Signaled:
		return policy.Killed, again("died of signal %d (%v) after %s; ipam-guard did not send it", int(run.Signal), run.Signal, took)
	}
	return failed(what, run)
}

// notStarted judges a delegate that could not be run.
func notStarted(what string, err error) (policy.Kind, *Error) {
	code := codeTryAgain
	var missing *delegate.MissingError
	if errors.As(err, &missing) && missing.Path == "" {
		code = codeEnvironment
	}
	return policy.Missing, newError(code, fmt.Sprintf("%s: %v", what, err), "the delegate was not run")
}

// failed reads the error object of a delegate that exits with another status
// than 0.
func failed(what string, run delegate.Run) (policy.Kind, *Error) {
	var e Error
	text := "nothing on stdout"
	if len(bytes.TrimSpace(run.Stdout)) > 0 {
		if err := oneDocument(run.Stdout, &e); err == nil && (e.Code != 0 || e.Msg != "") {
			if e.Code == 0 {
				e.Code = codeInternal
			}
			return policy.Error, &e
		}
		text = "stdout is " + excerpt(run.Stdout)
	}
	return policy.Protocol, newError(codeInternal, fmt.Sprintf("%s: exit status %d without a CNI error: %s", what, run.Exit, text), "")
}

// checkResult says why a result can't be used: a main plugin needs one document
// with at least one address. The result of a whole plugin may have none.
func checkResult(run delegate.Run, version string, at position) error {
	if run.Truncated {
		return fmt.Errorf("more than %d bytes on stdout, which begins with %s", delegate.MaxResult, excerpt(run.Stdout))
	}
	if len(bytes.TrimSpace(run.Stdout)) == 0 {
		return errors.New("no result on stdout")
	}
	result, err := conflist.Parse(run.Stdout)
	if err != nil {
		return fmt.Errorf("stdout is not one JSON document (%w): %s", err, excerpt(run.Stdout))
	}
	if code := result.Value("code"); code != nil && string(code) != "0" {
		return fmt.Errorf("with an error object: %s", excerpt(run.Stdout))
	}
	n, err := addresses(result, version)
	if err != nil {
		return fmt.Errorf("the result can't be used (%w): %s", err, excerpt(run.Stdout))
	}
	if n == 0 && at != pluginPosition {
		return fmt.Errorf("the result has no address: %s", excerpt(run.Stdout))
	}
	return nil
}

// oneDocument decodes text if it is one JSON object and nothing else.
func oneDocument(text []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more after the first document")
	}
	return nil
}

// excerpt quotes the first 200 bytes.
func excerpt(text []byte) string {
	const most = 200
	if len(text) > most {
		return fmt.Sprintf("%q... (%d bytes)", text[:most], len(text))
	}
	return fmt.Sprintf("%q", text)
}

// withStderr adds the end of stderr to an error's details.
func withStderr(details string, stderr []byte) string {
	const most = 1024
	stderr = bytes.TrimSpace(stderr)
	if len(stderr) == 0 {
		return details
	}
	if len(stderr) > most {
		stderr = stderr[len(stderr)-most:]
	}
	return joined(details, fmt.Sprintf("stderr ends with %q", stderr))
}

// joined puts parts of an error's details together.
func joined(parts ...string) string {
	var kept []string
	for _, p := range parts {
		if p != "" {
			kept = append(kept, p)
		}
	}
	return strings.Join(kept, "; ")
}

func rounded(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
