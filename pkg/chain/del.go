package chain

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/ipam-guard/ipam-guard/pkg/conflist"
	"github.com/ipam-guard/ipam-guard/pkg/journal"
	"github.com/ipam-guard/ipam-guard/pkg/policy"
)

// del runs the delegate's DEL until the policy says stop.
func (op *operation) del(ctx context.Context) answer {
	if err := op.owe(ctx); err != nil {
		return failure(reword(err))
	}
	p := op.conf.settings.policyFor("DEL")
	for n := 1; ; n++ {
		r := op.attempt(ctx, "DEL", n)
		v := p.Decide(r.Outcome)
		if r.interrupted {
			v = policy.Verdict{Then: policy.Fail, Rule: "interrupted"}
		}
		if (v.Retry || op.useOther(r, v)) && op.pause(ctx, p.Delay(n, op.Random())) {
			continue
		}
		return op.answerDel(ctx, r, v, n)
	}
}

// owe writes that the attachment must be released, before anyone waits for the
// host lock, and finds the configuration to release it by: the record of its
// key, else the only record that this container and interface have, else stdin.
func (op *operation) owe(ctx context.Context) *Error {
	op.locate()
	k := op.key()
	_, busy, err := op.take(ctx, k, nil)
	if busy != nil {
		return busy
	}
	if err == nil && op.entry == nil {
		if other, ok := op.journal.Other(k); ok {
			_, busy, err = op.take(ctx, other, nil)
		}
		if op.entry != nil && !op.standsFor(&op.entry.Record) {
			op.leave()
		}
	}
	if busy != nil {
		return busy
	}
	if op.entry != nil && !op.entry.Newer {
		op.recordedDEL(&op.entry.Record)
	} else if op.unreadable != nil {
		return op.unreadable
	}
	if err == nil {
		err = op.noteDEL(ctx, k)
	}
	if err != nil {
		op.unrecorded = err
		op.warn(fmt.Sprintf("DEL of %s: it can't be recorded: %v; going on without", op.attachment(), err))
	}
	return nil
}

// standsFor says whether the record of another key is that of this DEL, under
// the name that its network or delegate had. Another plugin of the same list has
// a record of its own, and what is in it may live.
func (op *operation) standsFor(r *journal.Record) bool {
	was, is := ipamType(r.Netconf), ipamType(op.netconf)
	switch {
	case op.unreadable != nil || r.Delegate == op.conf.typ:
		return true
	case op.conf.position == pluginPosition: // not for that of its IPAM plugin alone
		return was != "" && is != "" && was != r.Delegate
	}
	return was == r.Delegate || was == op.conf.typ || was == op.conf.ownType
}

// noteDEL writes the intent.
func (op *operation) noteDEL(ctx context.Context, k journal.Key) error {
	if op.entry != nil {
		return op.update(func(r *journal.Record) {
			if r.State != journal.Releasing {
				r.State, r.Owed, r.Due = journal.Releasing, journal.Netns, journal.Uptime()
			}
			r.Gone = r.Gone || op.netns == ""
		})
	}
	first := &journal.Record{Facts: op.facts(), Status: journal.Status{State: journal.Releasing, Owed: journal.Netns, Gone: op.netns == ""}}
	_, busy, err := op.take(ctx, k, first)
	if busy != nil {
		return busy
	}
	return err
}

// useOther goes over to the other configuration, once, where the first one
// failed for another reason than the weather.
func (op *operation) useOther(r result, v policy.Verdict) bool {
	if op.other == nil || r.err == nil || r.interrupted || v.Retry || v.Then == policy.Succeed || r.Kind == policy.Lock || sameConfig(op.netconf, op.other) {
		return false
	}
	op.netconf, op.other = op.other, nil
	return true
}

// sameConfig says whether two configurations say the same, however they are
// written.
func sameConfig(a, b []byte) bool {
	var x, y any
	for into, text := range map[*any][]byte{&x: a, &y: b} {
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.UseNumber()
		if dec.Decode(into) != nil {
			return false
		}
	}
	return reflect.DeepEqual(x, y)
}

// answerDel tells the runtime what the verdict says.
func (op *operation) answerDel(ctx context.Context, r result, v policy.Verdict, n int) answer {
	op.line.Verdict, op.line.Rule = string(v.Then), v.Rule
	if r.err != nil {
		op.line.Error = r.err.Error()
	} else {
		op.line.Verdict = "ok"
	}
	switch v.Then {
	case policy.Succeed:
		op.forget()
		if op.conf.position == pluginPosition { // its IPAM plugin may have one of when the guard stood there
			op.drop(ipamType(op.netconf))
		}
		op.leave()
		op.replayDue(ctx)
		return answer{}
	case policy.Defer:
		err := op.promise(r.Message)
		if err == nil {
			return answer{}
		}
		op.line.Verdict = string(policy.Fail)
		r.err.Code = codeTryAgain
		r.err.Details = joined(r.err.Details, fmt.Sprintf("the policy says defer, but that can't be promised (%v): answered as fail", err))
	}
	op.keep(journal.Netns, r.Message)
	return failure(reword(op.explain(r, v, n)))
}

// explain adds to the delegate's own error what it is about and what to do.
func (op *operation) explain(r result, v policy.Verdict, n int) *Error {
	e := *r.err
	note := fmt.Sprintf("ipam-guard: DEL of %s failed in attempt %d, after %s in all (%s); its address may still be taken: call DEL again", op.attachment(), n, rounded(time.Since(op.Start)), v.Rule)
	if op.entry != nil {
		note += ", or it is released from its record once its network namespace is gone"
	}
	e.Details = joined(e.Details, note)
	return &e
}

// ipamType is the type of a netconf's IPAM plugin, "" without one.
func ipamType(netconf []byte) string {
	top, err := conflist.Parse(netconf)
	if err != nil {
		return ""
	}
	ipam, err := top.Object("ipam")
	if err != nil {
		return ""
	}
	typ, _ := conflist.String(ipam.Value("type"))
	return typ
}
