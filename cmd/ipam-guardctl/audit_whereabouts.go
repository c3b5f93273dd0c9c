package main

import (
	"context"
	"fmt"

	"github.com/ipam-guard/ipam-guard/cmd/ipam-guardctl/internal/store"
)

// whereabouts reads whereabouts' pools, by the kubeconfigs that its networks name
// or the one that was given, and which pods the cluster has.
func (a *auditing) whereabouts(ctx context.Context) (all []store.Held, pods map[string]bool) {
	read := map[string]bool{}
	if a.kubeconfig != "" {
		read[a.kubeconfig] = a.cluster(ctx, a.kubeconfig, &all, &pods)
	}
	for i, s := range a.stores {
		path := s.kubeconfig
		if a.kubeconfig != "" {
			path = a.kubeconfig
		}
		if s.Delegate != whereabouts {
			continue
		}
		if path == "" {
			a.see(fmt.Errorf("whereabouts' pools were not read: the configuration of network %s names no kubeconfig: say --kubeconfig", s.Name))
			continue
		}
		if _, done := read[path]; !done {
			read[path] = a.cluster(ctx, path, &all, &pods)
		}
		a.stores[i].read = read[path]
	}
	return all, pods
}

// cluster reads one cluster's. What can't be read is told, the rest is compared.
func (a *auditing) cluster(ctx context.Context, path string, all *[]store.Held, pods *map[string]bool) bool {
	c, err := store.Whereabouts(ctx, path)
	if err != nil {
		a.see(fmt.Errorf("whereabouts' pools can't be read by %s: %w", path, err))
		return false
	}
	if a.clusters == nil {
		a.clusters = map[string]bool{}
	}
	a.clusters[path] = true
	*all, *pods = append(*all, c.Held...), c.Pods
	return true
}
