// Package cache keeps what took long to get, outside the tree: each thing once
// per name, whole or not at all. Test processes that want the same thing at once
// wait for each other. What a name stands for is left to others; put the version
// into it.
package cache

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

// DirVariable is the environment variable that moves the cache.
const DirVariable = "IPAM_GUARD_TESTS_CACHE"

// A Cache is a folder of things that took long to make.
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
		return Cache{}, fmt.Errorf("a folder to keep programs in, set %s: %w", DirVariable, err)
	}
	return Cache{Dir: filepath.Join(dir, "ipam-guard-tests"), Log: log}, nil
}

// Once returns the folder of that name, which fill makes if it isn't there.
func (c Cache) Once(ctx context.Context, name string, fill func(context.Context, string) error) (string, bool, error) {
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
