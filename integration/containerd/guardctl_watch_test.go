//go:build integration || results

package containerd_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/fsnotify/fsnotify"
)

// poll asks for the network all the time.
func (c *guardctl) poll(t *testing.T, over <-chan struct{}) {
	for polls := 1; ; polls++ {
		if why := c.daemon.network(t); why != "" {
			t.Errorf("poll %d: the network is not ready: %s", polls, why)
		}
		select {
		case <-over:
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// watch reads the conf folder at every event in it, as a runtime does. What it
// returns ends that, and says how many events there were.
func (c *guardctl) watch(t *testing.T) (end func() (events int)) {
	t.Helper()
	w, err := fsnotify.NewWatcher()
	if err == nil {
		err = w.Add(c.ConfDir)
	}
	if err != nil {
		t.Fatal(err)
	}
	var watching sync.WaitGroup
	events := 0
	watching.Go(func() {
		for e := range w.Events {
			events++
			files, err := libcni.ConfFiles(c.ConfDir, []string{".conf", ".conflist", ".json"})
			if err != nil || !slices.Equal(files, []string{c.conf}) {
				t.Errorf("at %s: the folder has %v, %v", e, files, err)
			}
			if err := c.usable(); err != nil {
				t.Errorf("at %s: %v", e, err)
			}
		}
	})
	t.Cleanup(func() { _ = w.Close() })
	return func() int {
		_ = w.Close()
		watching.Wait()
		return events
	}
}

// usable says why the runtime can't use the configuration: that it is not whole, not
// the network's, or names a plugin that isn't there.
func (c *guardctl) usable() error {
	list, err := libcni.NetworkConfFromFile(c.conf)
	if err == nil && (list.Name != "pods" || len(list.Plugins) != 1) {
		err = fmt.Errorf("network %q with %d plugins", list.Name, len(list.Plugins))
	}
	if err != nil {
		return err
	}
	conf := list.Plugins[0].Network
	for _, plugin := range []string{conf.Type, conf.IPAM.Type} {
		if _, err := os.Stat(filepath.Join(c.Bin, plugin)); err != nil {
			return err
		}
	}
	return nil
}

// unguarded: nothing tells any more that there was a guard.
func (c *guardctl) unguarded(t *testing.T) {
	t.Helper()
	if have := c.read(t, c.conf); have != c.bytes {
		t.Errorf("in the end:\n%s\nwant\n%s", have, c.bytes)
	}
	entries, err := os.ReadDir(c.ConfDir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the conf folder has %v, %v", entries, err)
	}
	left, err := filepath.Glob(filepath.Join(c.Bin, "*ipam-guard*"))
	if hidden, _ := filepath.Glob(filepath.Join(c.Bin, ".*")); err != nil || len(left)+len(hidden) > 0 {
		t.Errorf("beside the plugins: %v, %v", left, hidden)
	}
	c.WantNothingLeft(t)
}

// neverWithout: containerd has said of no moment that it has no network.
func (c *guardctl) neverWithout(t *testing.T) {
	t.Helper()
	log := []byte(c.read(t, c.daemon.log))
	for _, words := range []string{"cni config load failed", "cni plugin not initialized", "failed to reload cni", "failed to load cni", "failed to find plugin"} {
		if at := bytes.Index(log, []byte(words)); at >= 0 {
			t.Errorf("containerd said: %s", log[max(0, at-200):min(len(log), at+300)])
		}
	}
}
