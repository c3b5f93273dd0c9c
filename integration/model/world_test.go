//go:build integration || crash

package model_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
	"github.com/ipam-guard/ipam-guard/pkg/journal"
)

// world is a node and what the model knows of it.
type world struct {
	*guardtest.Node
	setup
	journal *journal.Journal
	moved   int // names given to netns and boots
	trace   []string

	// live holds, for each attachment that lives, its addresses: an ADD was
	// answered with success, no DEL was asked for, its netns is still there.
	live map[attachment]map[string]bool
}

func newWorld(t testing.TB, s setup) *world {
	t.Helper()
	w := &world{Node: guardtest.New(t), setup: s, live: map[attachment]map[string]bool{}}
	w.journal = &journal.Journal{Dir: w.StateDir, Node: journal.Here()}
	w.Guard()
	if s.real {
		w.installHostLocal(t)
	}
	// Under load a delegate in order may time out as well: just another fault.
	w.settings(t, "400ms")
	w.setMode(t, "heal")
	return w
}

func (w *world) settings(t testing.TB, timeout string) {
	t.Helper()
	w.SetNodeFile(t, guardtest.Object{"defaults": guardtest.Object{
		"lockDir": w.LockDir, "stateDir": w.StateDir, "log": guardtest.Object{"file": w.LogFile},
		"timeout": timeout, "policy": guardtest.Object{"onError": w.onError},
		"retry": guardtest.Object{"attempts": w.attempts, "backoff": "1ms"},
	}})
}

func (w *world) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}

// delegateType is the one whose records there are.
func (w *world) delegateType() string { return w.name() }

func (w *world) key(a attachment) journal.Key {
	return journal.Key{Network: a.network, Container: a.container, IfName: a.ifname, Delegate: w.delegateType()}
}

// records reads all records. Nobody may be at work.
func (w *world) records(t testing.TB) map[attachment]journal.Record {
	t.Helper()
	found := map[attachment]journal.Record{}
	noForks := &syscall.ForkLock // a child of another test would have the locks too, until it is another program
	noForks.RLock()
	defer noForks.RUnlock()
	var closed []journal.Key
	w.journal.Walk(w.delegateType(), "", func(k journal.Key) {
		e := w.journal.Try(k)
		if e == nil {
			t.Fatalf("the record of %s can't be had, though nobody is at work", k)
		}
		found[attachment{k.Network, k.Container, k.IfName}] = e.Record
		e.Close()
	}, func(k journal.Key) { closed = append(closed, k) })
	if len(closed) > 0 {
		t.Errorf("records that can't be read: %v", closed)
	}
	return found
}

// netns is the path of a container's namespace: a file, since the guard goes by
// path, device and inode.
func (w *world) netns(container string) string { return filepath.Join(w.Dir, "ns", container) }

func (w *world) hasNetns(container string) bool {
	_, err := os.Lstat(w.netns(container))
	return err == nil
}

func (w *world) newNetns(t testing.TB, container string) {
	t.Helper()
	path := w.netns(container)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, nil, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// endNetns takes a namespace away, and all that lived in it. The file is kept
// elsewhere: its inode is not given to the next one.
func (w *world) endNetns(t testing.TB, container string) {
	t.Helper()
	w.moved++
	err := os.MkdirAll(filepath.Join(w.Dir, "graves"), 0o755)
	if err == nil {
		err = os.Rename(w.netns(container), filepath.Join(w.Dir, "graves", fmt.Sprint(w.moved)))
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for a := range w.live {
		if a.container == container {
			delete(w.live, a)
		}
	}
}

// reboot ends all netns, empties the lock folder, and makes what is written the
// writing of another boot.
func (w *world) reboot(t testing.TB) {
	t.Helper()
	for _, c := range containers {
		w.endNetns(t, c)
	}
	locks, _ := filepath.Glob(w.LockDir + "/*")
	for _, l := range locks {
		_ = os.Remove(l)
	}
	w.moved++
	boot := w.journal.Boot
	other := fmt.Sprintf("%08x-0000-4000-8000-000000000000", w.moved)
	rename := strings.NewReplacer(boot, other, "p-"+boot[:8]+"-", "p-"+other[:8]+"-").Replace
	err := filepath.WalkDir(filepath.Join(w.StateDir, "records"), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(path, []byte(rename(string(text))), 0o600)
	})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	marks, _ := filepath.Glob(w.StateDir + "/queue/*/p-*")
	for _, m := range marks {
		if err := os.Rename(m, filepath.Join(filepath.Dir(m), rename(filepath.Base(m)))); err != nil {
			t.Fatal(err)
		}
	}
}

// settle waits until what a killed guard left behind is gone: it holds the
// host lock.
func (w *world) settle(t testing.TB) {
	t.Helper()
	locks, _ := filepath.Glob(w.LockDir + "/*.lock")
	for _, l := range locks {
		guardtest.Eventually(t, "the end of a killed guard's delegate", func() bool { return free(l) })
	}
}

func free(path string) bool {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) == nil
}

// gone says whether what a record was attached to is gone, by what the model
// did: a reboot, or another file at the path, or none. A DEL that found none has
// noted no inode, and nothing to compare with.
func (w *world) gone(r *journal.Record) bool {
	var st unix.Stat_t
	err := unix.Stat(r.Netns.Path, &st)
	return r.Netns.Boot != w.journal.Boot || err != nil || r.Netns.Inode != 0 && st.Ino != r.Netns.Inode
}

// age makes ten minutes pass: what waits is due, and what was attached to a
// netns that is gone has been so for long. It says for which attachments this
// machine has not been up for long enough.
func (w *world) age(t testing.TB) (tooYoung []attachment) {
	t.Helper()
	since := journal.Uptime() - (11 * time.Minute).Milliseconds()
	for a, r := range w.records(t) {
		gone := r.State == journal.Attached && w.gone(&r)
		if gone && since <= 0 {
			tooYoung = append(tooYoung, a)
			continue
		}
		later := r.State != journal.Attached && r.Boot == w.journal.Boot && r.Due > journal.Uptime()
		if !gone && !later {
			continue
		}
		if err := w.update(a, func(r *journal.Record) {
			if gone {
				r.GoneSince = since
			} else {
				r.Due = journal.Uptime()
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	return tooYoung
}

func (w *world) update(a attachment, change func(*journal.Record)) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	e := w.journal.Try(w.key(a))
	if e == nil {
		return fmt.Errorf("the record of %s can't be had", a.owner())
	}
	defer e.Close()
	return e.Update(change)
}
