// Package parts has the programs that the tests run against: etcd from the
// distribution, kube-apiserver and whereabouts built from their modules.
//
// It promises to leave the machine and this module as they were: everything is
// made in a cache folder outside the tree, in modules that are written there,
// once per version, and appears there whole or not at all. Test processes that
// want the same part at once wait for each other. Running the programs is left
// to others.
package parts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
)

// What is built from modules.
const (
	KubernetesVersion  = "v1.37.2"
	LibrariesVersion   = "v0.37.2" // of k8s.io/api and its like, that go with it
	WhereaboutsVersion = "v0.9.2"
)

// DirVariable is the environment variable that moves the cache.
const DirVariable = "IPAM_GUARD_TESTS_CACHE"

// A Cache is a folder of parts that took long to make.
type Cache struct {
	Dir string
	Log io.Writer // a line before and after whatever takes long
}

// Default is the cache that the environment names, else the user's.
func Default(log io.Writer) (Cache, error) {
	if dir := os.Getenv(DirVariable); dir != "" {
		return Cache{Dir: dir, Log: log}, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return Cache{}, fmt.Errorf("a folder to keep built programs in, set %s: %w", DirVariable, err)
	}
	return Cache{Dir: filepath.Join(dir, "ipam-guard-tests"), Log: log}, nil
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
		dir, built, err := c.once(ctx, part.name, part.make)
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

// once returns the folder of that name, which fill makes if it isn't there.
func (c Cache) once(ctx context.Context, name string, fill func(context.Context, string) error) (string, bool, error) {
	whole := filepath.Join(c.Dir, name)
	if there(whole) {
		return whole, false, nil
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return "", false, err
	}
	lock := flock.New(whole + ".lock")
	if ok, err := lock.TryLockContext(ctx, time.Second); !ok {
		return "", false, fmt.Errorf("somebody else is making it: %w", err)
	}
	defer lock.Close()
	if there(whole) {
		return whole, false, nil
	}
	return whole, true, c.fresh(ctx, name, whole, fill)
}

func there(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

func (c Cache) fresh(ctx context.Context, name, whole string, fill func(context.Context, string) error) error {
	part := whole + ".part"
	if err := os.RemoveAll(part); err != nil { // of somebody who was killed
		return err
	}
	defer os.RemoveAll(part)
	if err := os.Mkdir(part, 0o755); err != nil {
		return err
	}
	began := time.Now()
	fmt.Fprintf(c.Log, "%s: not in %s, making it\n", name, c.Dir)
	if err := fill(ctx, part); err != nil {
		return err
	}
	fmt.Fprintf(c.Log, "%s: made in %v\n", name, time.Since(began).Round(time.Second))
	return os.Rename(part, whole)
}
