package main

import (
	"context"
	"fmt"
	"time"
)

// result is what is left of a storm of DELs.
type result struct {
	once  int // addresses taken after one DEL for each pod
	again int // after the runtime asked again for what had failed
}

// barePatience is how long the runtime waits without the guard, where what
// hangs would hang for ever.
const barePatience = 4 * time.Second

// withoutGuard repeats both storms with the delegate alone.
func (s *story) withoutGuard(ctx context.Context) error {
	s.title("4. The same two storms without ipam-guard")
	nw, err := s.node.bare()
	if err != nil {
		return err
	}
	for _, c := range storm(ctx, s.node.pods, patience, nw.add) {
		if c.err != nil {
			return fmt.Errorf("%s: %w", c.pod.name, c.err)
		}
	}
	if err := s.node.setMoods(); err != nil {
		return err
	}
	owed := failed(storm(ctx, s.node.pods, barePatience, nw.del))
	s.say("%d of %d DELs failed (those that hung were stopped after %s, else they'd hang still).", len(owed), len(s.node.pods), barePatience)
	if s.without.once, err = nw.reserved(); err != nil {
		return err
	}
	for round := 0; len(owed) > 0 && round < rounds && ctx.Err() == nil; round++ {
		owed = failed(storm(ctx, owed, barePatience, nw.del))
	}
	s.without.again, err = nw.reserved()
	return err
}

func (s *story) compare() {
	s.title("Addresses still taken, though every pod is gone")
	row := func(name string, r result) []string {
		return []string{name, fmt.Sprintf("%d leaked", r.once), fmt.Sprintf("%d leaked", r.again)}
	}
	s.table([][]string{
		{"", "if the runtime asks once (CRI-O, podman)", "if it asks again (kubelet)"},
		row("bare", s.without),
		row("guarded", s.with),
	})
}
