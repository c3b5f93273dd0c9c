package chain

import (
	"bytes"
	"context"
	"encoding/json"
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
	if op.conf.settings.GC == "forward" {
		op.netconf = withAttachments(op.netconf, list, keep)
		r := op.runIfThere(ctx, "GC", h)
		if len(failed) == 0 || r.err != nil {
			return op.plain(r)
		}
	}
	return op.collected(failed)
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
	unreadable, newer := op.journal.Walk(op.conf.typ, op.conf.name, func(k journal.Key) { keys = append(keys, k) })
	if unreadable+newer > 0 {
		op.warn(fmt.Sprintf("GC: %d records can't be read, %d are of a newer version: left alone", unreadable, newer))
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
	if !op.journal.Releasable(&e.Record, by) {
		return "", false
	}
	s := &op.conf.settings
	if time.Since(op.Start)+s.need("DEL")+s.need("GC") > s.Deadline.GC {
		return "no time left, it is for the next GC", false
	}
	why = op.replay(ctx, e, h)
	return why, why == ""
}

// withAttachments adds keys to the list of valid attachments of a netconf: the
// one change that a GC makes to what the caller sent.
func withAttachments(netconf []byte, list []attachment, keys []journal.Key) []byte {
	var added [][]byte
	for _, k := range keys {
		a := attachment{ContainerID: k.Container, IfName: k.IfName}
		if text, err := json.Marshal(a); err == nil && !slices.Contains(list, a) {
			added = append(added, text)
		}
	}
	o, err := conflist.Parse(netconf)
	if err != nil || len(added) == 0 {
		return netconf
	}
	var edits []conflist.Edit
	for _, m := range o.Members {
		if m.Name != "cni.dev/valid-attachments" && m.Name != "cni.dev/attachments" || o.Doc[m.Value.Start] != '[' {
			continue
		}
		text := bytes.Join(added, []byte{','})
		if len(list) > 0 {
			text = append([]byte{','}, text...)
		}
		bracket := m.Value.End - 1
		edits = append(edits, conflist.Edit{Span: conflist.Span{Start: bracket, End: bracket}, Text: text})
	}
	return conflist.Splice(netconf, 0, edits...)
}
