//go:build integration || crash

package model_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// attachment is a key as the runtime knows it.
type attachment struct{ network, container, ifname string }

// The attachments of a sequence: two of one container, two networks.
var attachments = map[string]attachment{
	"a1": {"pods", "a", "eth0"},
	"a2": {"pods", "a", "net1"},
	"b1": {"pods", "b", "eth0"},
	"c1": {"other", "c", "eth0"},
}

var (
	names      = []string{"a1", "a2", "b1", "c1"}
	containers = []string{"a", "b", "c"}
	networks   = []string{"pods", "other"}
)

// An op is one thing that happens. Its text is
//
//	mode:M            the delegate fails, hangs, heals: see modes
//	gone:C, new:C     the netns of a container goes, or is replaced
//	reboot
//	CALL, CALL|CALL   one call of the guard, or two at once
//
// and that of a call
//
//	add:A, del:A, del0:A   of an attachment; del0 is without a netns
//	gc:NETWORK=C,C         with these containers in the list
//
// with @US behind it where the guard is killed that many microseconds after its
// start.
type op struct {
	what, arg string
	calls     []call
}

type call struct {
	verb, arg string
	kill      time.Duration // 0: it isn't
}

func (o op) String() string {
	if o.calls == nil {
		return strings.TrimSuffix(o.what+":"+o.arg, ":")
	}
	var texts []string
	for _, c := range o.calls {
		texts = append(texts, c.String())
	}
	return strings.Join(texts, "|")
}

func (c call) String() string {
	text := c.verb + ":" + c.arg
	if c.kill > 0 {
		text += "@" + strconv.FormatInt(c.kill.Microseconds(), 10)
	}
	return text
}

func format(ops []op) string {
	var texts []string
	for _, o := range ops {
		texts = append(texts, o.String())
	}
	return strings.Join(texts, " ")
}

func parseOps(t testing.TB, text string) []op {
	t.Helper()
	var ops []op
	for word := range strings.FieldsSeq(text) {
		o, err := parseOp(word)
		if err != nil {
			t.Fatal(err)
		}
		ops = append(ops, o)
	}
	return ops
}

func parseOp(word string) (op, error) {
	what, arg, _ := strings.Cut(word, ":")
	switch {
	case what == "reboot", what == "mode" && slices.Contains(modes, arg),
		(what == "gone" || what == "new") && slices.Contains(containers, arg):
		return op{what: what, arg: arg}, nil
	}
	var o op
	for part := range strings.SplitSeq(word, "|") {
		c, err := parseCall(part)
		if err != nil {
			return op{}, err
		}
		o.calls = append(o.calls, c)
	}
	return o, nil
}

func parseCall(text string) (call, error) {
	rest, kill, _ := strings.Cut(text, "@")
	var c call
	c.verb, c.arg, _ = strings.Cut(rest, ":")
	network, _, isGC := strings.Cut(c.arg, "=")
	known := slices.Contains(names, c.arg) && slices.Contains([]string{"add", "del", "del0"}, c.verb) ||
		c.verb == "gc" && isGC && slices.Contains(networks, network)
	if !known {
		return c, fmt.Errorf("no such operation: %q", text)
	}
	if kill != "" {
		us, err := strconv.ParseInt(kill, 10, 64)
		if err != nil {
			return c, fmt.Errorf("%q: %w", text, err)
		}
		c.kill = time.Duration(us) * time.Microsecond
	}
	return c, nil
}

// setup is what does not change in a sequence.
type setup struct {
	seed     uint64
	real     bool   // host-local, not the scripted delegate
	alloc    string // what the scripted one does for an ADD
	onError  string // of the policy
	attempts int    // of a DEL
	pool     int    // addresses per network
}

func (s setup) name() string {
	if s.real {
		return "host-local"
	}
	return "fake"
}

func (s setup) String() string {
	return fmt.Sprintf("%s (%s), onError %s, %d attempts, %d addresses", s.name(), s.alloc, s.onError, s.attempts, s.pool)
}

// newSetup makes a sequence of a seed.
func newSetup(seed uint64) (setup, []op) {
	r := rand.New(rand.NewPCG(seed, 0))
	s := setup{
		seed: seed, real: seed%3 == 0,
		alloc:   pick(r, "alloc", "alloc-once", "alloc-same"),
		onError: pick(r, "fail", "defer"), attempts: 1 + r.IntN(2),
		pool: pick(r, 2, 50),
	}
	var ops []op
	for range 5 + r.IntN(8) {
		ops = append(ops, newOp(r))
	}
	return s, ops
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func newOp(r *rand.Rand) op {
	switch n := r.IntN(100); {
	case n < 18:
		if r.IntN(3) == 0 {
			return op{what: "mode", arg: "heal"}
		}
		return op{what: "mode", arg: pick(r, modes...)}
	case n < 25:
		return op{what: pick(r, "gone", "new"), arg: pick(r, containers...)}
	case n < 29:
		return op{what: "reboot"}
	case n < 50:
		return op{calls: []call{newCall(r), newCall(r)}}
	}
	return op{calls: []call{newCall(r)}}
}

func newCall(r *rand.Rand) call {
	c := call{arg: pick(r, names...)}
	switch n := r.IntN(100); {
	case n < 50:
		c.verb = "add"
	case n < 82:
		c.verb = "del"
	case n < 88:
		c.verb = "del0"
	default:
		c.verb, c.arg = "gc", pick(r, networks...)+"="+strings.Join(some(r, containers), ",")
	}
	if r.IntN(3) == 0 {
		// Mostly while it works, at times while a delegate hangs.
		c.kill = time.Duration(1+r.IntN(pick(r, 4_000, 20_000, 20_000, 900_000))) * time.Microsecond
	}
	return c
}

// some leaves each element in by a throw of a coin.
func some(r *rand.Rand, from []string) []string {
	var out []string
	for _, x := range from {
		if r.IntN(2) == 0 {
			out = append(out, x)
		}
	}
	return out
}

// What a failure prints is what it takes to run it again.
func TestOpsAreReadAsWritten(t *testing.T) {
	for seed := range uint64(300) {
		_, ops := newSetup(seed)
		if again := format(parseOps(t, format(ops))); again != format(ops) || len(ops) > 12 {
			t.Errorf("%s\nread as\n%s", format(ops), again)
		}
	}
	for _, bad := range []string{"add:x", "mode:odd", "gc:pods", "gone:a1", "add:a1@x", "add:a1|"} {
		if o, err := parseOp(bad); err == nil {
			t.Errorf("%s read as %v", bad, o)
		}
	}
}
