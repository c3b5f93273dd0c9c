package delegate

import (
	"sync"

	"golang.org/x/sys/unix"
)

// waker lets other goroutines end a poll. They may come late: after close
// nothing is written any more, least of all to somebody else's descriptor.
type waker struct {
	mu sync.Mutex
	fd int // an eventfd; -1: closed
}

func (w *waker) ring() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fd >= 0 {
		one := [8]byte{7: 1} // not zero in either byte order
		_, _ = unix.Write(w.fd, one[:])
	}
}

// silence takes back all rings so far. Only the thread that polls calls it.
func (w *waker) silence() {
	var count [8]byte
	_, _ = unix.Read(w.fd, count[:])
}

func (w *waker) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	closeAll(w.fd)
	w.fd = -1
}
