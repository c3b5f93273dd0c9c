package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// untilSignal is a context that is done at the first SIGTERM or SIGINT. It
// listens from when somebody first waits for it: listening costs two threads,
// and an operation that waits for nobody, behind a delegate that is quick, is
// over before it could matter. Until then a signal ends the process like
// SIGKILL, from which nothing is lost either.
type untilSignal struct {
	once  sync.Once
	inner context.Context
}

func (u *untilSignal) Done() <-chan struct{} {
	u.once.Do(func() {
		inner, stop := context.WithCancelCause(context.Background())
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
		go func() {
			s := <-signals
			stop(fmt.Errorf("ipam-guard got %v", s))
		}()
		u.inner = inner
	})
	return u.inner.Done()
}

func (u *untilSignal) Err() error {
	if u.inner == nil {
		return nil
	}
	return u.inner.Err()
}

func (u *untilSignal) Value(key any) any {
	if u.inner == nil {
		return nil
	}
	return u.inner.Value(key) // context.Cause looks here
}

func (u *untilSignal) Deadline() (time.Time, bool) { return time.Time{}, false }
