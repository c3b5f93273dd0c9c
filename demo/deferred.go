package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// askOnce is for a runtime that never repeats a DEL: the guard takes it on itself
// to release what could not be released, and does so with the calls of others.
func (s *story) askOnce(ctx context.Context) error {
	s.title("4. Detach the other %d while the address server is away, for a runtime that asks once", len(s.once))
	s.say("The policy says defer: the runtime is told success once the release is on record, on disk.")
	deferring, err := s.node.guarded("defer")
	if err != nil {
		return err
	}
	calls, err := s.whileDown(ctx, patience, deferring)
	if err != nil {
		return err
	}
	if err := s.showDetach(ctx, calls); err != nil {
		return err
	}
	if len(s.owed) > 0 {
		return s.unpromised(ctx)
	}
	if err := s.visits(ctx, deferring); err != nil {
		return err
	}
	s.with.once, err = s.guarded.reserved(s.once...)
	return err
}

// whileDown detaches the pods of the runtime that asks once, without the server.
func (s *story) whileDown(ctx context.Context, patience time.Duration, nw *network) ([]call, error) {
	if err := s.node.setDown(true); err != nil {
		return nil, err
	}
	calls := storm(ctx, s.once, patience, nw.del)
	return calls, s.node.setDown(false)
}

// unpromised tells why a runtime that asks once got an error, and counts what
// that leaves. It is then asked again, so that the demo leaves nothing.
func (s *story) unpromised(ctx context.Context) (err error) {
	s.say("\n%d times nothing could be promised.", len(s.owed))
	if why := s.node.records().Lasting(); why != nil {
		s.say("%v.", why)
	}
	if s.with.once, err = s.guarded.reserved(s.once...); err != nil {
		return err
	}
	_ = storm(ctx, s.owed, patience, s.guarded.del)
	return nil
}

// visits lets pods come and go, one after the other, until nothing is pending.
func (s *story) visits(ctx context.Context, nw *network) error {
	left := nw.pending()
	s.say("\n%d releases are pending. The server is back; other pods come and go, and each DEL makes good one of them:", left)
	counts := []string{fmt.Sprint(left)}
	for n := 1; left > 0 && n <= 3*len(s.once) && ctx.Err() == nil; n++ {
		visitor := pod{name: fmt.Sprintf("visitor-%02d", n), netns: s.again[n%len(s.again)].netns}
		if c := nw.add(ctx, visitor); c.err != nil {
			return fmt.Errorf("%s: %w", visitor.name, c.err)
		}
		if c := nw.del(ctx, visitor); c.err != nil {
			return fmt.Errorf("%s: %w", visitor.name, c.err)
		}
		left = nw.pending()
		counts = append(counts, fmt.Sprint(left))
	}
	s.say("  pending: %s", strings.Join(counts, " "))
	if left > 0 && ctx.Err() == nil {
		return errors.New("the pending releases were not made good by other pods' calls")
	}
	return nil
}
