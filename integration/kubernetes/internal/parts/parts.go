// Package parts has the programs that the tests run against: etcd from the
// distribution, kube-apiserver and whereabouts built from their modules.
//
// It promises to leave the machine and this module as they were: everything is
// made in the cache (see package cache), in modules that are written there, once
// per version. Running the programs is left to others.
package parts

import (
	"context"
	"fmt"
	"io"
	"path/filepath"

	"github.com/ipam-guard/ipam-guard/integration/internal/cache"
)

// What is built from modules.
const (
	KubernetesVersion  = "v1.37.2"
	LibrariesVersion   = "v0.37.2" // of k8s.io/api and its like, that go with it
	WhereaboutsVersion = "v0.9.2"
)

// A Cache has the parts.
type Cache struct{ cache.Cache }

// Default is the cache that the environment names, else the user's.
func Default(log io.Writer) (Cache, error) {
	c, err := cache.Default(log)
	return Cache{c}, err
}

// Parts are paths of programs, and of a folder: whereabouts' manifests.
type Parts struct {
	Etcd, APIServer, Whereabouts string
	Manifests                    string
	Built                        []string // what was not in the cache
}

// Get returns all parts, making those that the cache does not have. At the
// context's end it gives up; what the compiler has done by then is not lost.
func (c Cache) Get(ctx context.Context) (*Parts, error) {
	p := &Parts{}
	for _, part := range []struct {
		name string
		into *string
		make func(ctx context.Context, dir string) error
	}{
		{"whereabouts-" + WhereaboutsVersion, &p.Whereabouts, c.whereabouts},
		{"etcd", &p.Etcd, c.etcd},
		{"kube-apiserver-" + KubernetesVersion, &p.APIServer, c.apiserver},
	} {
		dir, built, err := c.Once(ctx, part.name, part.make)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", part.name, err)
		}
		*part.into = dir
		if built {
			p.Built = append(p.Built, part.name)
		}
	}
	p.Manifests = filepath.Join(p.Whereabouts, "crds")
	p.Whereabouts = filepath.Join(p.Whereabouts, "whereabouts")
	p.Etcd = filepath.Join(p.Etcd, "etcd")
	p.APIServer = filepath.Join(p.APIServer, "kube-apiserver")
	return p, nil
}
