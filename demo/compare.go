package main

import (
	"context"
	"fmt"
	"time"
)

// result is what is left of a storm of DELs.
type result struct {
	once  int // addresses taken of those pods whose runtime asked once
	again int // of those whose runtime asked again for what had failed
}

// barePatience is how long the runtime waits without the guard, where what
// hangs would hang for ever.
const barePatience = 4 * time.Second

// withoutGuard repeats both storms with the delegate alone.
func (s *story) withoutGuard(ctx context.Context) error {
	s.title("5. The same without ipam-guard")
	nw, err := s.node.bare()
	if err != nil {
		return err
	}
	for _, c := range storm(ctx, s.node.pods, patience, nw.add) {
		if c.err != nil {
			return fmt.Errorf("%s: %w", c.pod.name, c.err)
		}
	}
	if err := s.node.setMoods(s.again); err != nil {
		return err
	}
	owed := failed(storm(ctx, s.again, barePatience, nw.del))
	s.say("With moods %d of %d DELs failed (those that hung were stopped after %s, else they'd hang still).", len(owed), len(s.again), barePatience)
	for round := 0; len(owed) > 0 && round < rounds && ctx.Err() == nil; round++ {
		owed = failed(storm(ctx, owed, barePatience, nw.del))
	}
	if s.without.again, err = nw.reserved(s.again...); err != nil {
		return err
	}
	calls, err := s.whileDown(ctx, barePatience, nw)
	if err != nil {
		return err
	}
	s.say("With the server away %d of %d failed, and nobody comes back to them.", len(failed(calls)), len(s.once))
	s.without.once, err = nw.reserved(s.once...)
	return err
}

func (s *story) compare() {
	s.title("Addresses still taken, though every pod is gone")
	row := func(name string, r result) []string {
		return []string{name, fmt.Sprintf("%d leaked", r.once), fmt.Sprintf("%d leaked", r.again)}
	}
	s.table([][]string{
		{
			"", fmt.Sprintf("server away, the runtime asks once (%d pods)", len(s.once)),
			fmt.Sprintf("moods, it asks again (%d pods)", len(s.again)),
		},
		row("bare", s.without),
		row("guarded", s.with),
	})
}
