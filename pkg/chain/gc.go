package chain

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ipam-guard/ipam-guard/pkg/conflist"
	"github.com/ipam-guard/ipam-guard/pkg/journal"
	"github.com/ipam-guard/ipam-guard/pkg/policy"
)

// gc releases what the guard's records of this network show to be owed, and
// then forwards the caller's list of valid attachments to the delegate, with
// those added that are not to be released. Without a list a delegate like
// host-local would free everything: then nothing is done.
func (op *operation) gc(ctx context.Context) answer {
	list, ok := op.conf.attachments()
	if !ok {
		op.warn("GC without a list of valid attachments (missing, null or no list): nothing released, nothing forwarded")
		return answer{}
	}
	if op.conf.settings.GC == "off" {
		return answer{}
	}
	h, refused := op.acquire(ctx, "GC", 0)
	if refused != nil {
		return op.plain(*refused)
	}
	defer h.release(op)
	op.locate()
	keep, failed := op.collect(ctx, list, h)
	if op.conf.settings.GC == "forward" && nameless(keep) {
		failed = append(failed, "nothing was forwarded: a record that can't be read doesn't say whose it is, and who it may be must not be freed")
	} else if op.conf.settings.GC == "forward" {
		op.netconf = withAttachments(op.netconf, list, keep)
		r := op.runIfThere(ctx, "GC", h)
		if len(failed) == 0 || r.err != nil {
			return op.plain(r)
		}
	}
	return op.collected(failed)
}

// nameless reports whether the name of one of them is not known.
func nameless(keys []journal.Key) bool {
	return slices.ContainsFunc(keys, func(k journal.Key) bool { return k.Container == "" })
}

// collected answers for the records alone.
func (op *operation) collected(failed []string) answer {
	op.line.Verdict = "ok"
	if len(failed) == 0 {
		return answer{}
	}
	op.line.Verdict = string(policy.Fail)
	return failure(newError(codeTryAgain,
		fmt.Sprintf("GC of network %s: %d addresses could not be released yet; they stay recorded", op.conf.name, len(failed)),
		strings.Join(failed, "; ")))
}

// collect releases what may be released: of a container that the list doesn't
// name by what a GC may do, of one that it names by what anyone may do. It
// returns what is not to be released, and what could not be.
func (op *operation) collect(ctx context.Context, list []attachment, h *held) (keep []journal.Key, failed []string) {
	var keys []journal.Key
	op.journal.Walk(op.conf.typ, op.conf.name,
		func(k journal.Key) { keys = append(keys, k) },
		func(k journal.Key) { keep = append(keep, k) })
	if len(keep) > 0 {
		op.warn(fmt.Sprintf("GC: %d records can't be read, or are of a newer version: left alone, and taken for valid", len(keep)))
	}
	if err := op.journal.Writable(); err != nil && len(keys) > 0 {
		op.warn(fmt.Sprintf("GC: records can't be changed, nothing is released by them: %v", err))
	}
	for _, k := range keys {
		why, released := op.collectOne(ctx, k, list, h)
		switch {
		case why != "":
			failed = append(failed, fmt.Sprintf("%s: %s", k, why))
		case !released:
			keep = append(keep, k)
		}
	}
	return keep, failed
}

func (op *operation) collectOne(ctx context.Context, k journal.Key, list []attachment, h *held) (why string, released bool) {
	e := op.journal.Try(k)
	if e == nil {
		return "", false // somebody is at work on it
	}
	defer e.Close()
	by := journal.Its
	if slices.ContainsFunc(list, func(a attachment) bool { return a.ContainerID == k.Container }) {
		by = journal.Anyone
	}
	if !op.mayRelease(&e.Record, by) {
		return "", false
	}
	s := &op.conf.settings
	if time.Since(op.Start)+s.need("DEL")+s.need("GC") > s.Deadline.GC {
		return "no time left, it is for the next GC", false
	}
	why = op.replay(ctx, e, h)
	return why, why == ""
}

// The names of the list of valid attachments: the specification's, and the one
// before it.
const (
	presentList = "cni.dev/valid-attachments"
	olderList   = "cni.dev/attachments"
)

// withAttachments adds keys to the list of valid attachments of a netconf: the
// one change that a GC makes to what the caller sent. A list under the older
// name alone is repeated under the present one: a delegate that doesn't know the
// older name would see no list, and free everything.
func withAttachments(netconf []byte, list []attachment, keys []journal.Key) []byte {
	o, err := conflist.Parse(netconf)
	if err != nil {
		return netconf
	}
	added := missingOf(list, keys)
	var edits []conflist.Edit
	for _, m := range o.Members {
		if (m.Name == presentList || m.Name == olderList) && o.Doc[m.Value.Start] == '[' {
			end := m.Value.End - 1
			edits = append(edits, conflist.Edit{Span: conflist.Span{Start: end, End: end}, Text: added})
		}
	}
	out := conflist.Splice(netconf, 0, edits...)
	o, err = conflist.Parse(out)
	if _, ok := o.Find(presentList); ok || err != nil {
		return out
	}
	again := fmt.Appendf(nil, `{%q:%s}`, presentList, o.Value(olderList))
	over, err := conflist.Parse(again)
	if err != nil {
		return out
	}
	return conflist.Splice(out, 0, conflist.Edit{Span: o.Span, Text: o.Overlay(over, over.Members)})
}

// missingOf is the text that adds those keys to the list which it doesn't have.
func missingOf(list []attachment, keys []journal.Key) []byte {
	var added []byte
	for _, k := range keys {
		a := attachment{ContainerID: k.Container, IfName: k.IfName}
		if slices.Contains(list, a) {
			continue
		}
		if len(list)+len(added) > 0 {
			added = append(added, ',')
		}
		added = append(added, `{"containerID":`...)
		added = append(conflist.AppendString(added, a.ContainerID), `,"ifname":`...)
		added = append(conflist.AppendString(added, a.IfName), '}')
	}
	return added
}
