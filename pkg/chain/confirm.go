package chain

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/ipam-guard/ipam-guard/pkg/conflist"
	"github.com/ipam-guard/ipam-guard/pkg/delegate"
	"github.com/ipam-guard/ipam-guard/pkg/journal"
	"github.com/ipam-guard/ipam-guard/pkg/policy"
)

// Confirm says how a DEL that exits 0 shows that it did what it was asked to.
type Confirm struct {
	Line   string          `json:"line"`   // RE2: the last line of stderr that matches is the one that counts
	OK     string          `json:"ok"`     // RE2: and has to match this
	Reject string          `json:"reject"` // RE2: and no line may match this
	Set    json.RawMessage `json:"set"`    // laid over the delegate's ipam object for that DEL
}

// confirmation is what a DEL has to show, nil for nothing.
func (op *operation) confirmation() *Confirm {
	if op.conf.settings.Mode == "bypass" {
		return nil
	}
	return op.conf.settings.Confirm
}

// keptStderr is how much of a DEL's stderr is searched, in bytes.
const keptStderr = 1 << 20

// missing says what a DEL that exited 0 did not show, "" if it showed all.
func (c *Confirm) missing(run delegate.Run) string {
	if run.StderrCut {
		return fmt.Sprintf("it wrote more than %d bytes to stderr, too much to be confirmed", keptStderr)
	}
	line, ok := regexp.MustCompile(c.Line), regexp.MustCompile(c.OK)
	var last []byte
	for text := range bytes.Lines(run.Stderr) {
		text = bytes.TrimRight(text, "\r\n")
		if c.Reject != "" && regexp.MustCompile(c.Reject).Match(text) {
			return fmt.Sprintf("its stderr has %s, by which it did not do all of its work", excerpt(text))
		}
		if line.Match(text) {
			last = text
		}
	}
	switch {
	case last == nil:
		return "no line of its stderr matches confirm.line"
	case !ok.Match(last):
		return fmt.Sprintf("its stderr ends with %s, which does not match confirm.ok", excerpt(last))
	}
	return ""
}

// confirmed runs a DEL that has to show that it did its work. One for several
// ranges may stop at the first that has nothing for this container, also because
// an earlier DEL got that far: is it not confirmed, each range gets a run of its
// own. All of that is one attempt; which ranges are done is noted in the record.
func (op *operation) confirmed(ctx context.Context, n int, h *held) result {
	c, ranges := *op.confirmation(), op.ranges()
	if len(ranges) < 2 {
		return op.confirmedOnce(ctx, n, h, c, op.netconf)
	}
	if op.entry == nil || len(op.entry.Confirmed) == 0 {
		all := c
		all.Reject = either(c.Reject, delegate.RangesOf(op.conf.typ).Stops)
		if r := op.confirmedOnce(ctx, n, h, all, op.netconf); r.Kind != policy.Unconfirmed {
			return r
		}
	}
	return op.eachRange(ctx, n, h, c, ranges)
}

func either(a, b string) string {
	if a == "" {
		return b
	}
	return "(?:" + a + ")|(?:" + b + ")"
}

// eachRange runs one DEL for each range that isn't done yet. The first failure is
// the attempt's, but the others are tried too.
func (op *operation) eachRange(ctx context.Context, n int, h *held, c Confirm, ranges []conflist.Object) result {
	all := result{Outcome: policy.Outcome{Verb: "DEL", Delegate: op.conf.typ, Kind: policy.OK, Attempt: n}, started: true}
	for _, o := range ranges {
		text := string(o.Text(o.Span))
		if op.entry != nil && slices.Contains(op.entry.Confirmed, text) {
			continue
		}
		r := op.oneRange(ctx, n, h, c, o)
		if r.interrupted || r.alive {
			return r
		}
		if r.err == nil {
			op.noteRange(text)
		} else if all.err == nil {
			all = r
		}
	}
	return all
}

// oneRange runs the DEL of a range, if its whole timeout still fits.
func (op *operation) oneRange(ctx context.Context, n int, h *held, c Confirm, o conflist.Object) result {
	if !op.plainly && !time.Now().Before(op.fits(op.conf.settings.need("DEL"))) {
		e := newError(codeTryAgain, fmt.Sprintf("%s: no time is left in this call for the range %s", op.what("DEL"), o.Text(o.Span)), "")
		r := op.refused("DEL", n, e)
		r.Kind = policy.Unconfirmed
		return r
	}
	names := delegate.RangesOf(op.conf.typ)
	// Both keys, each with the one range: what is left out may come from elsewhere.
	over := fmt.Appendf(nil, `{%q:%s,%q:[%s]}`, names.One, o.Value(names.One), names.Many, o.Text(o.Span))
	return op.confirmedOnce(ctx, n, h, c, layIPAM(op.netconf, over))
}

// noteRange notes that a range is released, so that nobody has to go there
// again. Without a record every later DEL goes through all of them.
func (op *operation) noteRange(text string) {
	err := op.update(func(r *journal.Record) { r.Confirmed = append(slices.Clone(r.Confirmed), text) })
	if err != nil {
		op.warn(fmt.Sprintf("a range that is released could not be noted in the record: %v", err))
	}
}

// confirmedOnce runs the delegate with confirm.set laid over its netconf. What it
// says more on stderr because of that reaches the runtime only if it failed.
func (op *operation) confirmedOnce(ctx context.Context, n int, h *held, c Confirm, netconf []byte) result {
	cmd := op.command("DEL")
	cmd.Stdin, cmd.KeepStderr = layIPAM(netconf, c.Set), keptStderr
	louder := !bytes.Equal(cmd.Stdin, netconf)
	if louder {
		cmd.Stderr = nil
	}
	op.asked = &c
	r := op.once(ctx, "DEL", n, h, cmd)
	op.asked = nil
	if louder && r.err != nil {
		delegate.PassOn(op.Stderr, r.stderr)
	}
	return r
}

// ranges are the delegate's, each an object that names one; nil if nothing is
// known of them.
func (op *operation) ranges() []conflist.Object {
	names := delegate.RangesOf(op.conf.typ)
	o, err := ipamOf(op.netconf)
	if names == nil || err != nil {
		return nil
	}
	var found []conflist.Object
	add := func(r conflist.Object, err error) {
		if text, ok := conflist.String(r.Value(names.One)); err == nil && ok && text != "" {
			found = append(found, r)
		}
	}
	if one, ok := o.Find(names.One); ok {
		add(conflist.Parse(fmt.Appendf(nil, `{%q:%s}`, names.One, o.Text(one.Value))))
	}
	if m, ok := o.Find(names.Many); ok {
		list, _ := conflist.Elements(o.Doc, m.Value)
		for _, span := range list {
			add(o.At(span))
		}
	}
	return found
}

// ipamOf is the object in which a netconf has what its IPAM plugin reads.
func ipamOf(netconf []byte) (conflist.Object, error) {
	top, err := conflist.Parse(netconf)
	if err != nil {
		return top, err
	}
	if ipam, err := top.Object("ipam"); err == nil && ipam.Doc != nil {
		return ipam, nil
	}
	return top, nil
}

// layIPAM lays an object's members over a netconf's ipam object.
func layIPAM(netconf, set []byte) []byte {
	o, err := ipamOf(netconf)
	if err != nil || len(set) == 0 {
		return netconf
	}
	over, err := conflist.Parse(set)
	if err != nil {
		return netconf
	}
	return conflist.Splice(netconf, 0, conflist.Edit{Span: o.Span, Text: o.Overlay(over, over.Members)})
}
