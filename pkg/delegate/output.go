package delegate

import (
	"errors"
	"io"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	chunk = 64 << 10 // a pipe's worth
	small = 4 << 10  // most delegates write less

	// backlog is how far Cmd.Stderr may fall behind before it misses a part.
	backlog = 1 << 20

	// flushPatience is how long an ended run waits for Cmd.Stderr.
	flushPatience = 500 * time.Millisecond
)

// read takes one chunk of a pipe if the last poll saw something there.
func (p *process) read(slot int) {
	if p.fds[slot].Revents != 0 {
		p.take(slot, chunk)
	}
}

// drain takes what is in the pipe at this moment. A grandchild that goes on
// writing adds nothing.
func (p *process) drain(slot int) {
	if p.fds[slot].Fd < 0 {
		return
	}
	left, err := unix.IoctlGetInt(int(p.fds[slot].Fd), unix.TIOCINQ)
	for n := 0; err == nil && left > 0; left -= n {
		if n = p.take(slot, min(left, chunk)); n == 0 {
			return
		}
	}
}

// take moves up to limit bytes from the pipe to where they belong. Nobody
// polls a pipe any more that has come to its end.
func (p *process) take(slot, limit int) int {
	if p.buf == nil {
		p.buf = make([]byte, small)
	}
	n, err := unix.Read(int(p.fds[slot].Fd), p.buf[:min(limit, len(p.buf))])
	if n == len(p.buf) && n < chunk {
		defer func() { p.buf = make([]byte, chunk) }()
	}
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return 0
	case err != nil || n == 0:
		unix.Close(int(p.fds[slot].Fd))
		p.fds[slot].Fd = -1
		return 0
	case slot == onStdout:
		p.stdout.add(p.buf[:n])
	default:
		p.stderr.add(p.buf[:n])
		p.relay.add(p.buf[:n])
	}
	return n
}

// head keeps the beginning of a stream, up to MaxResult.
type head struct {
	kept []byte
	more bool
}

func (h *head) add(data []byte) {
	if room := MaxResult - len(h.kept); len(data) > room {
		data, h.more = data[:room], true
	}
	h.kept = append(h.kept, data...)
}

// tail keeps the end of a stream, limit bytes of it, and up to as much again
// before it moves that to the front.
type tail struct {
	limit int
	kept  []byte
	cut   bool // more came than is kept
}

func (t *tail) add(data []byte) {
	if len(t.kept)+len(data) > 2*t.limit {
		t.kept, t.cut = t.kept[:copy(t.kept, t.last())], true
	}
	t.kept = append(t.kept, data...)
}

func (t *tail) last() []byte { return t.kept[max(0, len(t.kept)-t.limit):] }

// PassOn writes what was held back of a delegate's stderr. A writer that fails,
// or that blocks for longer than a moment, misses it.
func PassOn(w io.Writer, text []byte) {
	r := relay{w: w}
	r.add(text)
	r.flush()
}

// relay passes stderr on from a goroutine of its own, which lives only while
// there is something to write: a writer that blocks, such as a pipe that
// nobody reads, must stop neither the clock nor the delegate.
type relay struct {
	w       io.Writer // nil: nowhere, or no more
	mu      sync.Mutex
	pending []byte
	idle    chan struct{} // closed by the goroutine when it ends; nil: there is none
}

func (r *relay) add(data []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.w == nil || len(r.pending)+len(data) > backlog {
		return
	}
	r.pending = append(r.pending, data...)
	if r.idle == nil {
		r.idle = make(chan struct{})
		go r.pass(r.w)
	}
}

func (r *relay) pass(w io.Writer) {
	for data := r.next(nil); data != nil; data = r.next(write(w, data)) {
	}
}

// next gives what is to be written next. Without any, or after a failure, the
// goroutine is done.
func (r *relay) next(failed error) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	if failed != nil {
		r.w, r.pending = nil, nil
	}
	data := r.pending
	r.pending = nil
	if data == nil {
		close(r.idle)
		r.idle = nil
	}
	return data
}

// write makes an error of a panic: no writer may end the guard in the middle
// of an operation.
func write(w io.Writer, data []byte) (err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("panic in the writer of stderr")
		}
	}()
	_, err = w.Write(data)
	return err
}

// flush waits a moment until everything is written, and then gives up on it.
func (r *relay) flush() {
	r.mu.Lock()
	idle := r.idle
	r.mu.Unlock()
	if idle == nil {
		return
	}
	timer := time.NewTimer(flushPatience)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
		r.mu.Lock()
		r.w, r.pending = nil, nil
		r.mu.Unlock()
	}
}
