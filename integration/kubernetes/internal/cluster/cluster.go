// Package cluster runs a control plane that is just enough for an IPAM plugin
// which keeps its state in the Kubernetes API: etcd, kube-apiserver, and the
// resource definitions and roles of whereabouts. No kubelet, no controllers.
//
// It promises that all of it is on loopback, on ports of its own, in one
// temporary folder, and gone when Stop returns, or soon after the test process
// has died, however that happened. What is kept in it is for the tests to say.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/ipam-guard/ipam-guard/integration/kubernetes/internal/parts"
)

// A Cluster is a control plane that is ready.
type Cluster struct {
	API
	Versions map[string]string // as its programs tell them

	dir       string
	children  []*child
	endOfLife func() // removes dir
}

// Start returns when whereabouts could work with it.
func Start(ctx context.Context, p *parts.Parts) (_ *Cluster, err error) {
	c := &Cluster{}
	defer func() {
		if err != nil {
			c.Stop()
		}
	}()
	if c.dir, err = os.MkdirTemp("", "kubernetes-"); err != nil {
		return nil, err
	}
	if c.endOfLife, err = removeAtOurEnd(c.dir); err != nil {
		return nil, err
	}
	if c.Versions, err = versions(p); err != nil {
		return nil, err
	}
	if err := c.start(ctx, p); err != nil {
		return nil, errors.Join(err, c.logs())
	}
	if err := c.install(ctx, p.Manifests); err != nil {
		return nil, errors.Join(err, c.logs())
	}
	return c, nil
}

// Stop ends it and removes what it has left.
func (c *Cluster) Stop() {
	for i := len(c.children) - 1; i >= 0; i-- {
		c.children[i].kill()
	}
	if c.endOfLife != nil {
		c.endOfLife()
	}
}

func versions(p *parts.Parts) (map[string]string, error) {
	v := map[string]string{"whereabouts": parts.WhereaboutsVersion}
	for name, program := range map[string]string{"etcd": p.Etcd, "kube-apiserver": p.APIServer} {
		out, err := exec.Command(program, "--version").Output()
		if err != nil {
			return nil, fmt.Errorf("%s --version: %w", program, err)
		}
		line, _, _ := strings.Cut(string(out), "\n")
		v[name] = line[strings.LastIndexAny(line, " ")+1:]
	}
	return v, nil
}

// logs is the end of what the programs have said.
func (c *Cluster) logs() error {
	var all []error
	for _, child := range c.children {
		text, _ := os.ReadFile(child.log)
		all = append(all, fmt.Errorf("%s ended its log with:\n%s", filepath.Base(child.log), text[max(0, len(text)-2000):]))
	}
	return errors.Join(all...)
}
