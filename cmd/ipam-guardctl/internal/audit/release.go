package audit

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/ipam-guard/ipam-guard/pkg/chain"
)

// Candidate is something that nobody seems to use.
type Candidate struct {
	Container string
	Addresses []netip.Addr
	// Hold takes its record, or its key where it has none.
	Hold func(context.Context) (*chain.Hold, error)
	// Still says why it is no longer what it was, nil if it is. May be nil.
	Still func() error
	// Released says why it isn't released by a DEL that went well. May be nil.
	Released func() error
}

// Releaser releases what is unused in two looks. Between them the records are
// locked: nobody begins anything with them.
type Releaser struct {
	Pause   time.Duration
	Running func(context.Context) (Running, error) // asks the runtimes anew
	InUse   func() (map[netip.Addr]string, error)  // looks for addresses anew
}

// most is how many records are locked at once: each is an open file.
const most = 400

// Release releases what is unused still, and tells of each what became of it: nil
// is released.
func (r Releaser) Release(ctx context.Context, all []Candidate, told func(i int, err error)) {
	for from := 0; from < len(all); from += most {
		r.batch(ctx, all[from:min(from+most, len(all))], func(i int, err error) { told(from+i, err) })
	}
}

func (r Releaser) batch(ctx context.Context, all []Candidate, told func(int, error)) {
	holds := map[int]*chain.Hold{}
	drop := func(i int) {
		holds[i].Close()
		delete(holds, i)
	}
	defer func() { // after a panic, too
		for i := range holds {
			drop(i)
		}
	}()
	for i, c := range all {
		h, err := c.Hold(ctx)
		if err != nil {
			told(i, err)
			continue
		}
		holds[i] = h
	}
	if len(holds) == 0 {
		return
	}
	running, inUse, err := r.lookAgain(ctx)
	for i, c := range all {
		switch h := holds[i]; {
		case h == nil:
			continue
		case err != nil:
			told(i, err)
		default:
			told(i, c.release(ctx, h, running, inUse))
		}
		drop(i)
	}
}

// lookAgain waits, and asks anew.
func (r Releaser) lookAgain(ctx context.Context) (Running, map[netip.Addr]string, error) {
	select {
	case <-ctx.Done():
		return Running{}, nil, errInterrupted
	case <-time.After(r.Pause):
	}
	running, err := r.Running(ctx)
	if err != nil {
		return running, nil, err
	}
	inUse, err := r.InUse()
	if err != nil {
		err = fmt.Errorf("not all network namespaces can be looked into, so that an address in use could be missed: %w", err)
	}
	return running, inUse, err
}

var errInterrupted = errors.New("interrupted: not released")

// ErrLives says that somebody has come for it, or was overlooked.
var ErrLives = errors.New("it lives after all")

func (c Candidate) release(ctx context.Context, h *chain.Hold, running Running, inUse map[netip.Addr]string) error {
	if running.Has(c.Container) {
		return fmt.Errorf("%w: a runtime lists its container now", ErrLives)
	}
	for _, a := range c.Addresses {
		if where, used := inUse[a]; used {
			return fmt.Errorf("%w: %s has %s", ErrLives, where, a)
		}
	}
	if ctx.Err() != nil {
		return errInterrupted
	}
	if c.Still != nil {
		if err := c.Still(); err != nil {
			return err
		}
	}
	if err := h.Release(ctx); err != nil {
		return err
	}
	if c.Released != nil {
		return c.Released()
	}
	return nil
}
