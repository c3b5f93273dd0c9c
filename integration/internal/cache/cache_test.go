package cache_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ipam-guard/ipam-guard/integration/internal/cache"
)

func write(dir string) error { return os.WriteFile(filepath.Join(dir, "program"), nil, 0o755) }

// Whoever asks at the same time gets the one that is made.
func TestMadeOnce(t *testing.T) {
	c := cache.Cache{Dir: filepath.Join(t.TempDir(), "cache"), Log: io.Discard}
	var made, built atomic.Int32
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			dir, fresh, err := c.Once(t.Context(), "x", func(_ context.Context, dir string) error {
				made.Add(1)
				return write(dir)
			})
			if _, statErr := os.Stat(filepath.Join(dir, "program")); err != nil || statErr != nil {
				t.Error(err, statErr)
			}
			if fresh {
				built.Add(1)
			}
		})
	}
	all.Wait()
	if made.Load() != 1 || built.Load() != 1 {
		t.Errorf("made %d times, told %d", made.Load(), built.Load())
	}
}

// What failed, or was killed, leaves nothing that the next one would take for
// whole.
func TestWholeOrNotAtAll(t *testing.T) {
	c := cache.Cache{Dir: t.TempDir(), Log: io.Discard}
	broken := errors.New("broken")
	_, _, err := c.Once(t.Context(), "x", func(_ context.Context, dir string) error { return errors.Join(write(dir), broken) })
	if !errors.Is(err, broken) {
		t.Errorf("have %v", err)
	}
	stale := filepath.Join(c.Dir, "x.part")
	if err := errors.Join(os.Mkdir(stale, 0o755), os.WriteFile(filepath.Join(stale, "stale"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	dir, fresh, err := c.Once(t.Context(), "x", func(_ context.Context, dir string) error { return write(dir) })
	entries, _ := os.ReadDir(dir)
	if err != nil || !fresh || len(entries) != 1 || entries[0].Name() != "program" {
		t.Errorf("have %v, %v, %v", entries, fresh, err)
	}
}

// Nobody waits longer for somebody else than for itself.
func TestWaitingEnds(t *testing.T) {
	c := cache.Cache{Dir: t.TempDir(), Log: io.Discard}
	begun, end := make(chan struct{}), make(chan struct{})
	var other sync.WaitGroup
	other.Go(func() {
		_, _, err := c.Once(t.Context(), "x", func(_ context.Context, dir string) error {
			close(begun)
			<-end
			return write(dir)
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-begun
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, _, err := c.Once(ctx, "x", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("have %v", err)
	}
	close(end)
	other.Wait()
}
