package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	patience = time.Minute // how long the runtime waits
	rounds   = 5           // of asking again
)

// story is told step by step; each takes up where the one before it ended.
type story struct {
	*page
	node *node

	guarded *network
	again   []pod  // their runtime asks again, like kubelet
	once    []pod  // their runtime asks once, like CRI-O and podman
	owed    []pod  // whose DEL the runtime was told had failed
	with    result // with the guard
	without result
}

// tell returns how many addresses are left with the guard.
func (s *story) tell(ctx context.Context) (leaked int, err error) {
	if s.guarded, err = s.node.guarded("fail"); err != nil {
		return 0, err
	}
	half := (len(s.node.pods) + 1) / 2
	s.again, s.once = s.node.pods[:half], s.node.pods[half:]
	s.introduce()
	for _, step := range []func(context.Context) error{s.attach, s.detach, s.askAgain, s.askOnce, s.withoutGuard} {
		err := step(ctx)
		if ctx.Err() != nil {
			return 0, errors.New("interrupted, everything is cleaned up")
		}
		if err != nil {
			return 0, err
		}
	}
	s.compare()
	return s.guarded.reserved()
}

func (s *story) introduce() {
	if s.node.netns != nil {
		s.say("The parts: libcni -> bridge -> ipam-guard -> host-local, in network namespaces made for this.")
		return
	}
	s.say("No bridge and no network namespaces here (%s): libcni -> ipam-guard -> host-local.", s.node.why)
}

func (s *story) attach(ctx context.Context) error {
	s.title("1. Attach %d pods at once", len(s.node.pods))
	s.say("One delegate runs at a time. A pod's delegate gets its whole timeout once its turn has come,")
	s.say("however long the pod had to wait for it.")
	start := time.Now()
	calls := storm(ctx, s.node.pods, patience, s.guarded.add)
	took := time.Since(start)
	lines, err := s.node.lastLines("ADD")
	if err != nil {
		return err
	}
	rows := [][]string{{"pod", "address", "waited for the lock", "host-local took"}}
	addresses := map[string]bool{}
	for _, c := range calls {
		if c.err != nil {
			return fmt.Errorf("%s: %w", c.pod.name, c.err)
		}
		l := lines[c.pod.name]
		addresses[c.address] = true
		rows = append(rows, []string{c.pod.name, c.address, millis(l.LockWait), l.attempts()})
	}
	s.table(rows)
	s.say("\n%d pods, %d different addresses, %s in all.", len(calls), len(addresses), took.Round(time.Millisecond))
	return nil
}

func (s *story) detach(ctx context.Context) error {
	s.title("2. Detach %d of them at once, from a delegate with moods", len(s.again))
	s.say("Now host-local hangs (timeout: 1.5 s), is killed or gets its connection refused for some of them.")
	s.say("The guard tries up to 3 times; its policy decides when to stop and what the runtime is told.")
	s.say("ok: released. error: the delegate said no. killed: it died. timeout: the guard stopped it.")
	if err := s.node.setMoods(s.again); err != nil {
		return err
	}
	return s.showDetach(ctx, storm(ctx, s.again, patience, s.guarded.del))
}

// showDetach prints what happened to each pod, and notes who is owed a DEL.
func (s *story) showDetach(ctx context.Context, calls []call) error {
	if ctx.Err() != nil {
		return ctx.Err() // half a table would tell a wrong story
	}
	lines, err := s.node.lastLines("DEL")
	if err != nil {
		return err
	}
	rows := [][]string{{"pod", "the delegate's runs", "the policy", "the runtime is told"}}
	for _, c := range calls {
		l := lines[c.pod.name]
		rows = append(rows, []string{c.pod.name, l.attempts(), l.policy(), told(c.err)})
	}
	s.table(rows)
	s.owed = failed(calls)
	return nil
}

// told is a runtime's view of an answer.
func told(err error) string {
	var r *refusal
	switch {
	case err == nil:
		return "rc 0"
	case errors.As(err, &r):
		return r.Error()
	}
	return err.Error()
}

// askAgain does what kubelet does about a DEL that failed.
func (s *story) askAgain(ctx context.Context) error {
	var err error
	for round := 0; len(s.owed) > 0 && round < rounds && ctx.Err() == nil; round++ {
		s.title("3. Ask again for what failed, as kubelet does")
		s.say("Nothing is hidden from the runtime: where the address is still taken, it heard so and repeats the DEL.")
		if err := s.showDetach(ctx, storm(ctx, s.owed, patience, s.guarded.del)); err != nil {
			return err
		}
	}
	s.with.again, err = s.guarded.reserved(s.again...)
	return err
}
