package guardtest

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"
)

const (
	keep  = 4 << 20         // of a stream
	slack = 2 * time.Second // for the end of a stream after the end of the process
	limit = 3 * time.Minute // for anything at all
)

// Proc is a plugin that runs.
type Proc struct {
	Pid int // with Opts.Runtime that of the process in between

	cmd      *exec.Cmd
	report   string
	out, err *stream
	done     chan struct{}
	result   Result
}

// stream collects what comes out of a pipe.
type stream struct {
	r     *os.File
	buf   bytes.Buffer
	total int64
	held  bool
	done  chan struct{}
}

func (s *stream) Write(p []byte) (int, error) {
	s.total += int64(len(p))
	s.buf.Write(p[:min(len(p), max(0, keep-s.buf.Len()))])
	return len(p), nil
}

// collect ends at the end of the stream, or when its time is up.
func (s *stream) collect() {
	_, err := io.Copy(s, s.r)
	s.held = errors.Is(err, os.ErrDeadlineExceeded)
	_ = s.r.Close()
	close(s.done)
}

func start(t testing.TB, cmd *exec.Cmd, stdin []byte, report string) *Proc {
	t.Helper()
	p := &Proc{cmd: cmd, report: report, done: make(chan struct{})}
	in, feed := pipe(t)
	var outW, errW *os.File
	p.out, outW = newStream(t)
	p.err, errW = newStream(t)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, outW, errW
	began := time.Now()
	err := cmd.Start()
	for _, theirs := range []*os.File{in, outW, errW} {
		_ = theirs.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	p.Pid = cmd.Process.Pid
	go func() {
		_, _ = feed.Write(stdin) // a plugin may end without reading it
		_ = feed.Close()
	}()
	go p.out.collect()
	go p.err.collect()
	go p.wait(began, feed)
	return p
}

func pipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return r, w
}

func newStream(t testing.TB) (*stream, *os.File) {
	t.Helper()
	r, w := pipe(t)
	return &stream{r: r, done: make(chan struct{})}, w
}

// wait ends with the process; a grandchild that keeps the pipes costs slack.
func (p *Proc) wait(began time.Time, feed *os.File) {
	defer close(p.done)
	_ = p.cmd.Wait() // told by ProcessState
	r := &p.result
	r.Took = time.Since(began)
	_ = feed.Close()
	for _, s := range []*stream{p.out, p.err} {
		_ = s.r.SetReadDeadline(time.Now().Add(slack))
	}
	<-p.out.done
	<-p.err.done
	r.Stdout, r.Stderr, r.StdoutBytes = p.out.buf.String(), p.err.buf.String(), p.out.total
	r.Held = p.out.held || p.err.held
	r.RC = p.cmd.ProcessState.ExitCode()
	if ws, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		r.Signal = ws.Signal()
	}
	if p.report != "" {
		r.MaxRSSKB, _ = readNumber(p.report)
	}
}

// Wait waits for the end of the plugin, not of what it left behind. One that
// never ends is made to say what it is doing, and fails the test.
func (p *Proc) Wait(t testing.TB) Result {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(limit):
		p.Signal(syscall.SIGQUIT)
		time.AfterFunc(5*time.Second, p.Kill)
		<-p.done
		t.Fatalf("pid %d did not end within %v; stdout %q, stderr:\n%s", p.Pid, limit, p.result.Stdout, p.result.Stderr)
	}
	return p.result
}

// Done is closed when the plugin has ended.
func (p *Proc) Done() <-chan struct{} { return p.done }

// Signal signals the process alone, not what it started.
func (p *Proc) Signal(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) }

// Kill is SIGKILL for the process alone, as runtimes do it.
func (p *Proc) Kill() { p.Signal(syscall.SIGKILL) }

// CloseOutput is a caller that no longer reads: whoever writes gets EPIPE.
func (p *Proc) CloseOutput() {
	_ = p.out.r.Close()
	_ = p.err.r.Close()
}

// PluginPid is the plugin's own pid with Opts.Runtime.
func (p *Proc) PluginPid(t testing.TB) int {
	t.Helper()
	var pid int64
	Eventually(t, "pid of the plugin", func() bool {
		var err error
		pid, err = readNumber(p.report + ".pid")
		return err == nil
	})
	return int(pid)
}

func readNumber(path string) (int64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(data), 10, 64)
}
