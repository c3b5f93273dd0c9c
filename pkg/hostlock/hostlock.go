// Package hostlock is the lock that lets one delegate at a time run on a host.
//
// It promises:
//
//   - Waiting is blocking in the kernel, never polling; it ends when the context does, and a wait that was given up
//     and succeeds late unlocks itself.
//   - Whoever has a Lock holds the file that the path names, not one that was removed or replaced meanwhile. Only
//     regular files are locked, symbolic links aren't followed, and the file is never removed.
//   - The lock lives as long as a process that inherited its descriptor (Lock.FD), even if the guard is killed, but
//     never longer than Lock.Unlock: that unlocks for every process that shares the descriptor.
//   - What a dead guard left behind doesn't hold the lock for ever: a waiter kills those processes that demonstrably
//     hold it and demonstrably belong to a dead guard (see orphans.go), and nothing else.
//
// What the file contains is for people. It is never trusted: any content, or none, gives a working lock.
//
// It leaves to others: which path, how long to wait, starting and ending the delegate, setting MarkEnv in the
// delegate's environment, and what an error means to the runtime.
package hostlock

import (
	"context"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"golang.org/x/sys/unix"
)

// maxReplaced limits how often in a row the file may turn out to be another one once it is locked: a file system on
// which a descriptor and its path never agree must not keep a CPU busy until the deadline.
const maxReplaced = 100

// Lock is a lock that is held. Keep it reachable until Unlock: its descriptor is closed with it.
type Lock struct {
	waited time.Duration
	fd     int // -1: not found

	mu    sync.Mutex
	flock *flock.Flock // nil once unlocked
	info  *info
}

// Acquire waits for the lock until ctx is done, or until until (zero: no limit): then it is too late to begin to wait, but
// a lock that is free is taken all the same. The folder of path is made if it is missing. who is noted in the file
// (PID, Start, PIDNS and Since are filled in here). warn, if not nil, gets one line for each thing worth a warning.
//
// The error is an *OpenError, or a *BusyError if ctx was done first.
func Acquire(ctx context.Context, until time.Time, path string, who Holder, warn func(string)) (*Lock, error) {
	return acquire(ctx, path, who, warn, func(ctx context.Context, f *flock.Flock, start time.Time, warn func(string)) error {
		if !until.IsZero() { // only who waits pays for a timer
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, until)
			defer cancel()
		}
		return wait(ctx, f, start, warn)
	})
}

// TryAcquire is Acquire without waiting: if somebody holds the lock, the error is a *BusyError at once.
func TryAcquire(path string, who Holder, warn func(string)) (*Lock, error) {
	return acquire(context.Background(), path, who, warn, dontWait)
}

// waiter gets the lock that was busy, or an error.
type waiter func(ctx context.Context, f *flock.Flock, start time.Time, warn func(string)) error

// acquire tries the lock, leaves it to wait if it is busy, and starts over as long as what it got is no longer what
// path names.
func acquire(ctx context.Context, path string, who Holder, warn func(string), wait waiter) (*Lock, error) {
	start := time.Now()
	if warn == nil {
		warn = func(string) {}
	}
	for range maxReplaced {
		if ctx.Err() != nil {
			return nil, busy(path, start, context.Cause(ctx))
		}
		f, ok, err := try(path)
		if err == nil && !ok {
			err = wait(ctx, f, start, warn)
		}
		if err != nil {
			return nil, err
		}
		id, current, err := lockedFile(f)
		if err == nil && current {
			return newLock(f, id, start, who, warn), nil
		}
		_ = f.Unlock()
		if err != nil {
			return nil, err
		}
	}
	return nil, &OpenError{Path: path, Err: errReplaced}
}

func dontWait(_ context.Context, f *flock.Flock, start time.Time, _ func(string)) error {
	return busy(f.Path(), start, nil)
}

func newLock(f *flock.Flock, id fileID, start time.Time, who Holder, warn func(string)) *Lock {
	l := &Lock{waited: time.Since(start), flock: f, fd: descriptor(id)}
	me := whoami()
	who.PID, who.Start, who.PIDNS, who.Since = me.pid, me.start, me.pidns, time.Now().UTC()
	var err error
	if l.info, err = openInfo(f.Path(), id, who); err != nil {
		warn("lock " + f.Path() + ": its holder can't be noted in it: " + err.Error())
	}
	return l
}

// wait waits for the lock in the kernel. The one goroutine hands its result over or, if nobody is waiting any more,
// unlocks. While it is blocked the library's mutex is held, so that f isn't touched here.
func wait(ctx context.Context, f *flock.Flock, start time.Time, warn func(string)) error {
	got, abandoned := make(chan error), make(chan struct{})
	defer close(abandoned)
	go func() {
		err := lock(f)
		select {
		case got <- err:
		case <-abandoned:
			_ = f.Unlock()
		}
	}()

	hunt := hunter{path: f.Path(), self: whoami(), warn: warn}
	look := time.NewTimer(0)
	defer look.Stop()
	for {
		select {
		case err := <-got:
			return err
		case <-ctx.Done():
			return busy(f.Path(), start, context.Cause(ctx))
		case <-look.C:
			look.Reset(hunt.look())
		}
	}
}

// Waited is the time from the call of Acquire until the lock was held.
func (l *Lock) Waited() time.Duration { return l.waited }

// FD returns the locked descriptor, for a child to inherit: the lock is then held until Unlock, or until the last
// process that has the descriptor ends. It stays this package's: don't close it. It is false after Unlock, and where
// the descriptor could not be found.
func (l *Lock) FD() (uintptr, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.flock == nil || l.fd < 0 {
		return 0, false
	}
	return uintptr(l.fd), true
}

// Group notes the delegate's process group in the file. A waiter kills what is left of that group should this guard
// die.
func (l *Lock) Group(pgid int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.info != nil {
		l.info.holder.PGID = pgid
		_ = l.info.write() // for people only
	}
}

// Unlock unlocks, for all processes that share the descriptor. A second call does nothing.
func (l *Lock) Unlock() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.flock == nil {
		return nil
	}
	// Before the unlock: afterwards the file is somebody else's.
	l.info.clear()
	l.info = nil
	if err := l.flock.Unlock(); err != nil {
		return err
	}
	l.flock = nil
	return nil
}

// descriptor finds the descriptor that holds the lock on the file, since the library hands none out; -1 if there is
// none. Others of this process may have the file open too: only the one that holds the lock can lock it once more.
// That needs no /proc.
func descriptor(id fileID) int {
	for fd := range 1 << 16 {
		if isFile(fd, id) && unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) == nil && isFile(fd, id) {
			return fd
		}
	}
	return -1
}

func isFile(fd int, id fileID) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && idOf(&st) == id
}
