package atomicfile_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ipam-guard/ipam-guard/internal/atomicfile"
)

func write(t *testing.T, path, text string, mode fs.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func want(t *testing.T, path, text string) os.FileInfo {
	t.Helper()
	have, err := os.ReadFile(path)
	if err != nil || string(have) != text {
		t.Fatalf("%s: %q, %v, want %q", path, have, err, text)
	}
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// alone: nothing is left beside the files that are meant to be there.
func alone(t *testing.T, dir string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, e := range entries {
		have = append(have, e.Name())
	}
	if fmt.Sprint(have) != fmt.Sprint(names) {
		t.Errorf("%s has %v, want %v", dir, have, names)
	}
}

// Case 51: mode and owner are kept.
func TestReplaceKeepsModeAndOwner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.conf")
	write(t, path, "old", 0o640)
	if os.Geteuid() == 0 {
		if err := os.Chown(path, 1234, 4321); err != nil {
			t.Fatal(err)
		}
	}
	before := want(t, path, "old").Sys().(*syscall.Stat_t)
	if err := atomicfile.Replace(path, []byte("old"), []byte("new")); err != nil {
		t.Fatal(err)
	}
	info := want(t, path, "new")
	after := info.Sys().(*syscall.Stat_t)
	if info.Mode() != 0o640 || after.Uid != before.Uid || after.Gid != before.Gid {
		t.Errorf("mode %v, owner %d:%d, was %d:%d", info.Mode(), after.Uid, after.Gid, before.Uid, before.Gid)
	}
	if after.Ino == before.Ino {
		t.Error("the file was written in place")
	}
	alone(t, filepath.Dir(path), "a.conf")
}

func TestReplaceLeavesWhatIsSo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.conf")
	write(t, path, "same", 0o600)
	before := want(t, path, "same").Sys().(*syscall.Stat_t)
	if err := atomicfile.Replace(path, []byte("old"), []byte("same")); err != nil {
		t.Fatal(err)
	}
	if after := want(t, path, "same").Sys().(*syscall.Stat_t); after.Ino != before.Ino || after.Mtim != before.Mtim {
		t.Error("a file that had the content already was touched")
	}
}

func TestReplaceDoesNotOverwriteOthers(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.conf")
	write(t, path, "somebody else's", 0o600)
	for _, from := range [][]byte{[]byte("old"), nil} {
		if err := atomicfile.Replace(path, from, []byte("new")); !errors.Is(err, atomicfile.ErrChanged) {
			t.Errorf("from %q: %v", from, err)
		}
	}
	want(t, path, "somebody else's")
	if err := atomicfile.Replace(filepath.Join(dir, "gone"), []byte("old"), []byte("new")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is gone: %v", err)
	}
	if err := atomicfile.Replace(filepath.Join(dir, "b"), nil, []byte("new")); err != nil {
		t.Error(err)
	}
	alone(t, dir, "a.conf", "b")
}

// A symlinked file: its target changes, the link stays.
func TestReplaceBehindLinks(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	target, link := filepath.Join(elsewhere, "target"), filepath.Join(dir, "a.conf")
	write(t, target, "old", 0o600)
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.Replace(link, []byte("old"), []byte("new")); err != nil {
		t.Fatal(err)
	}
	want(t, target, "new")
	if to, err := os.Readlink(link); err != nil || to != target {
		t.Errorf("the link: %q, %v", to, err)
	}
	alone(t, dir, "a.conf")
	alone(t, elsewhere, "target")
	dangling := filepath.Join(dir, "b.conf")
	if err := os.Symlink(filepath.Join(elsewhere, "nothing"), dangling); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.Replace(dangling, nil, []byte("new")); err == nil || !strings.Contains(err.Error(), "leads nowhere") {
		t.Errorf("a link that leads nowhere: %v", err)
	}
}

// What a killed writer left is taken away by the next one.
func TestLeftOversGo(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.conf")
	write(t, path, "old", 0o600)
	write(t, filepath.Join(dir, ".a.conf.ipam-guardctl"), "half", 0o400)
	if err := atomicfile.Replace(path, []byte("old"), []byte("new")); err != nil {
		t.Fatal(err)
	}
	want(t, path, "new")
	alone(t, dir, "a.conf")
}

func TestInstall(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "plugin")
	var seen []string
	check := func(p string) error {
		seen = append(seen, filepath.Base(p))
		info, err := os.Stat(p)
		if err == nil && info.Mode().Perm()&0o111 == 0 {
			err = errors.New("not executable")
		}
		return err
	}
	if changed, err := atomicfile.Install(path, []byte("one"), check); err != nil || !changed {
		t.Fatal(changed, err)
	}
	if info := want(t, path, "one"); info.Mode() != 0o755 {
		t.Errorf("mode %v", info.Mode())
	}
	if changed, err := atomicfile.Install(path, []byte("one"), check); err != nil || changed {
		t.Error("again:", changed, err)
	}
	refusal := errors.New("no")
	if _, err := atomicfile.Install(path, []byte("two"), func(string) error { return refusal }); !errors.Is(err, refusal) {
		t.Errorf("refused: %v", err)
	}
	want(t, path, "one")
	alone(t, dir, "plugin")
	if fmt.Sprint(seen) != "[.plugin.ipam-guardctl plugin]" {
		t.Errorf("looked at %v", seen)
	}
	// One that has lost its mode gets it back.
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if changed, err := atomicfile.Install(path, []byte("one"), check); err != nil || !changed || want(t, path, "one").Mode() != 0o755 {
		t.Errorf("mode: %v, %v", changed, err)
	}
}

// Writers take turns: nothing that one of them wrote is lost, and readers see
// whole contents only.
func TestManyWriters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.conf")
	write(t, path, "", 0o600)
	const writers, each = 4, 10
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for done := 0; done < each; {
				now, err := os.ReadFile(path)
				if err != nil || len(bytes.Trim(now, "x")) > 0 {
					t.Errorf("%q, %v", now, err)
					return
				}
				err = atomicfile.Replace(path, now, append(now, 'x'))
				switch {
				case err == nil:
					done++
				case !errors.Is(err, atomicfile.ErrChanged):
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	want(t, path, strings.Repeat("x", writers*each))
}

func TestBusyFolder(t *testing.T) {
	if testing.Short() {
		t.Skip("waits ten seconds")
	}
	t.Parallel()
	dir := t.TempDir()
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := unix.Flock(int(d.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	err = atomicfile.Replace(filepath.Join(dir, "a"), nil, []byte("x"))
	if !errors.Is(err, unix.EWOULDBLOCK) || !strings.Contains(err.Error(), "which another process has") {
		t.Errorf("%v", err)
	}
	alone(t, dir)
}

func TestRemove(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	write(t, path, "x", 0o600)
	for range 2 {
		if err := atomicfile.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	alone(t, filepath.Dir(path))
}
