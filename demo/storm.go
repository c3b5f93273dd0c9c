package main

import (
	"context"
	"errors"
	"sync"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"
)

// call is what came of one ADD or DEL, as the runtime sees it.
type call struct {
	pod     pod
	address string // of an ADD
	err     error
}

var errPatience = errors.New("no answer: the runtime ran out of patience and stopped it")

// storm does something for all the pods at once, each within a time, and waits
// for all of them.
func storm(ctx context.Context, pods []pod, patience time.Duration, do func(context.Context, pod) call) []call {
	calls := make([]call, len(pods))
	start := make(chan struct{})
	var all sync.WaitGroup
	for i, p := range pods {
		all.Go(func() {
			<-start
			ctx, cancel := context.WithTimeoutCause(ctx, patience, errPatience)
			defer cancel()
			calls[i] = do(ctx, p)
			calls[i].pod = p
		})
	}
	close(start)
	all.Wait()
	return calls
}

func (nw *network) add(ctx context.Context, p pod) call {
	r, err := nw.node.runtime.AddNetworkList(ctx, nw.list, p.attachment())
	if err != nil {
		return call{err: err}
	}
	result, err := types100.NewResultFromResult(r)
	if err != nil {
		return call{err: err}
	}
	return call{address: result.IPs[0].Address.IP.String()}
}

func (nw *network) del(ctx context.Context, p pod) call {
	return call{err: nw.node.runtime.DelNetworkList(ctx, nw.list, p.attachment())}
}

// failed are those calls whose pods the runtime has to come back to.
func failed(calls []call) []pod {
	var pods []pod
	for _, c := range calls {
		if c.err != nil {
			pods = append(pods, c.pod)
		}
	}
	return pods
}
