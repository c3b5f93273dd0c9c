//go:build integration || results

package containerd_test

import (
	"context"
	"strings"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/ipam-guard/ipam-guard/integration/internal/trial"
)

// pod is a sandbox.
type pod struct {
	*daemon
	name string
	id   string // once it runs
}

func call(patience time.Duration, do func(context.Context) error) trial.Answer {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	began := time.Now()
	err := do(ctx)
	return trial.Answer{Err: err, Took: time.Since(began)}
}

func (p *pod) sandbox() *cri.PodSandboxConfig {
	return &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: p.name, Uid: p.name, Namespace: "default"},
		Hostname: "pod",
		Linux:    &cri.LinuxPodSandboxConfig{CgroupParent: "/" + p.Name},
	}
}

// Run is a trial.Pod's.
func (p *pod) Run(patience time.Duration) trial.Answer {
	return call(patience, func(ctx context.Context) error {
		r, err := p.cri.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: p.sandbox()})
		p.id = r.GetPodSandboxId()
		return err
	})
}

// Stop is a trial.Pod's.
func (p *pod) Stop(patience time.Duration) trial.Answer {
	return call(patience, func(ctx context.Context) error {
		_, err := p.cri.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: p.id})
		return err
	})
}

// Remove is a trial.Pod's.
func (p *pod) Remove(patience time.Duration) trial.Answer {
	return call(patience, func(ctx context.Context) error {
		_, err := p.cri.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: p.id})
		return err
	})
}

// State is the sandbox's: READY, NOTREADY, or gone. A pod whose Run failed has
// no id that was told: then it is looked for by its name.
func (p *pod) State() string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	list, err := p.cri.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return err.Error()
	}
	for _, s := range list.Items {
		if s.Metadata.GetName() == p.name {
			p.id = s.Id
			return strings.TrimPrefix(s.State.String(), "SANDBOX_")
		}
	}
	return trial.Gone
}
