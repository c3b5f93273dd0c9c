package chain

import (
	"context"
	"fmt"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/ipam-guard/ipam-guard/pkg/policy"
)

// del runs the delegate's DEL until the policy says stop.
func (op *operation) del(ctx context.Context) answer {
	p := op.conf.settings.policyFor("DEL")
	for n := 1; ; n++ {
		r := op.attempt(ctx, "DEL", n)
		v := p.Decide(r.Outcome)
		if r.interrupted {
			v = policy.Verdict{Then: policy.Fail, Rule: "interrupted"}
		}
		if v.Retry && op.pause(ctx, p.Delay(n, op.Random())) {
			continue
		}
		return op.answerDel(r, v, n)
	}
}

// answerDel tells the runtime what the verdict says.
func (op *operation) answerDel(r result, v policy.Verdict, n int) answer {
	op.line.Verdict, op.line.Rule = string(v.Then), v.Rule
	if r.err == nil {
		op.line.Verdict = "ok"
		return answer{}
	}
	op.line.Error = r.err.Error()
	if v.Then == policy.Succeed {
		return answer{}
	}
	if v.Then == policy.Defer {
		op.line.Verdict = "fail"
		r.err.Details = joined(r.err.Details, "the policy says defer, but nothing is recorded yet that could be released later: answered as fail")
	}
	return failure(reword(op.explain(r, v, n)))
}

// explain adds to the delegate's own error what it is about and what to do.
func (op *operation) explain(r result, v policy.Verdict, n int) *types.Error {
	e := *r.err
	note := fmt.Sprintf("ipam-guard: DEL of %s failed in attempt %d, after %s in all (%s); its address may still be taken: call DEL again",
		op.attachment(), n, rounded(time.Since(op.Start)), v.Rule)
	e.Details = joined(e.Details, note)
	return &e
}
