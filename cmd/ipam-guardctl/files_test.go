package main_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/fsnotify/fsnotify"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

const podsConf = `{
  "cniVersion": "1.0.0",
  "name": "pods",
  "plugins": [
    {"type": "bridge", "ipam": {"type": "host-local", "big": 9007199254740993}}
  ]
}
`

// The conflists in conf and their guarded twins are what wrap makes of them.
func TestGoldens(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	files, err := filepath.Glob("../../conf/*.conflist")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, path := range files {
		name := filepath.Base(path)
		original := read(t, path)
		twins, err := filepath.Glob("../../conf/[gp]*/" + name) // guarded: position ipam; plugin: position plugin
		if err != nil || len(twins) != 1 {
			t.Fatalf("%s: twins %v, %v", name, twins, err)
		}
		twin := read(t, twins[0])
		args := []string{"wrap", "--no-probe"}
		if settings := guardOf(t, twin); settings != "" {
			args = append(args, "--settings", settings)
		}
		file := n.write(t, name, original)
		n.ok(t, append(args, file)...)
		if have := read(t, file); have != twin {
			t.Errorf("%s wrapped:\n%s\nwant\n%s", name, have, twin)
		}
		n.ok(t, "unwrap", file)
		if have := read(t, file); have != original {
			t.Errorf("%s unwrapped:\n%s", name, have)
		}
	}
}

// guardOf is the text of the first guard object of a conflist.
func guardOf(t *testing.T, text string) string {
	t.Helper()
	var list struct {
		Plugins []struct {
			Guard json.RawMessage
			IPAM  struct{ Guard json.RawMessage }
		}
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	for _, p := range list.Plugins {
		for _, guard := range []json.RawMessage{p.Guard, p.IPAM.Guard} {
			if guard != nil {
				return string(guard)
			}
		}
	}
	return ""
}

// Case 50: every shape of the corpus, by file, in place, and back; in the position
// that was chosen and as a plugin.
func TestCorpusByFile(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	files, err := filepath.Glob("../../pkg/conflist/testdata/corpus/*")
	if err != nil || len(files) < 20 {
		t.Fatal(files, err)
	}
	for _, path := range files {
		original := read(t, path)
		for _, position := range []string{"", "ipam", "plugin"} {
			file := n.write(t, filepath.Base(path), original)
			out, status := n.tool(t, nil, "wrap", "--no-probe", "--position", position, file)
			wrapped := read(t, file)
			if changed := wrapped != original; changed != (status == 0) || !changed && status != 3 {
				t.Errorf("%s, position %q: exit status %d, changed %v\n%s", path, position, status, changed, out)
			}
			n.tool(t, nil, "wrap", "--no-probe", "--position", position, file)
			if read(t, file) != wrapped {
				t.Errorf("%s, position %q: wrapped again it is another", path, position)
			}
			n.ok(t, "unwrap", file)
			if read(t, file) != original {
				t.Errorf("%s, position %q: not the original", path, position)
			}
		}
	}
}

// Case 54: who parses the folder at every event never sees anything but one whole
// configuration.
func TestWatcherSeesWholeFiles(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	file := n.write(t, "net.d/10-pods.conflist", podsConf)
	w, err := fsnotify.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Add(n.path("net.d")); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var events, seen int
	wg.Go(func() {
		for e := range w.Events {
			events++
			if e.Name == file && e.Has(fsnotify.Create) { // a rename inside the folder: what containerd reloads on
				seen++
			}
			files, err := libcni.ConfFiles(n.path("net.d"), []string{".conf", ".conflist", ".json"})
			if err != nil || !slices.Equal(files, []string{file}) {
				t.Errorf("at %s: %v, %v", e, files, err)
			}
			if list, err := libcni.NetworkConfFromFile(file); err != nil || list.Name != "pods" {
				t.Errorf("at %s: %v", e, err)
			}
		}
	})
	const rounds = 5
	for range rounds {
		n.ok(t, "install", "--cni-path", n.path("cni"), n.path("net.d"))
		n.ok(t, "uninstall", "--cni-path", n.path("cni"), "--cache-dir", n.path("results"), n.path("net.d"))
	}
	quiet := 0
	guardtest.Eventually(t, "the last event", func() bool { quiet++; return quiet > 40 })
	_ = w.Close()
	wg.Wait()
	if seen < 2*rounds || events > 12*rounds*2 {
		t.Errorf("%d events, of which %d are the file's, in %d writes", events, seen, 2*rounds)
	}
}

// A symlinked conf: its target is edited, the link stays. A file's mode stays.
func TestSymlinkedConf(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	target := n.write(t, "elsewhere/pods", podsConf)
	if err := os.Chmod(target, 0o640); err != nil {
		t.Fatal(err)
	}
	link := n.path("net.d", "10-pods.conflist")
	if err := errors.Join(os.Mkdir(n.path("net.d"), 0o755), os.Symlink("../elsewhere/pods", link)); err != nil {
		t.Fatal(err)
	}
	n.ok(t, "wrap", "--no-probe", n.path("net.d"))
	if to, err := os.Readlink(link); err != nil || to != "../elsewhere/pods" {
		t.Errorf("the link: %q, %v", to, err)
	}
	info, err := os.Stat(target)
	if err != nil || info.Mode() != 0o640 || !strings.Contains(read(t, target), "ipam-guard") {
		t.Errorf("the target: %v, %v", info, err)
	}
	n.ok(t, "unwrap", n.path("net.d"))
	if read(t, target) != podsConf {
		t.Error("not the original")
	}
}

// Folders that can't be written: a clear message, and all as it was.
func TestReadOnlyFolders(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	file := n.write(t, "net.d/10-pods.conflist", podsConf)
	nobody := openFor(t, n)
	for _, dir := range []string{"net.d", "cni"} {
		if err := os.Chmod(n.path(dir), 0o555); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(n.path(dir), 0o755) })
	}
	for _, args := range [][]string{
		{"wrap", "--no-probe", n.path("net.d")},
		{"install", "--cni-path", n.path("cni"), n.path("net.d")},
	} {
		out, status := n.tool(t, nobody, args...)
		if status != 1 || !strings.Contains(out, "permission denied") {
			t.Errorf("%v: exit status %d\n%s", args, status, out)
		}
	}
	if read(t, file) != podsConf {
		t.Error("the file was changed")
	}
	// What can't be read may name the guard: nothing is taken away.
	own := n.write(t, "cni2/ipam-guard", read(t, n.path("tool", "ipam-guard")))
	for _, unreadable := range []string{file, n.path("net.d")} {
		if err := os.Chmod(unreadable, 0); err != nil {
			t.Fatal(err)
		}
		out, status := n.tool(t, nobody, "uninstall", "--cni-path", n.path("cni2"), "--cache-dir", n.path("results"), n.path("net.d"))
		if _, err := os.Lstat(own); status != 1 || err != nil || !strings.Contains(out, "permission denied") {
			t.Errorf("%s can't be read: exit status %d, %v\n%s", unreadable, status, err, out)
		}
	}
	_ = os.Chmod(n.path("net.d"), 0o755)
	if _, err := os.Lstat(n.path("cni", "ipam-guard")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the binary: %v", err)
	}
}

// openFor lets another user than root in, since root may write everywhere.
func openFor(t *testing.T, n node) *syscall.Credential {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil
	}
	for dir := n.dir; dir != filepath.Clean(os.TempDir()) && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(n.path("node-config.json"), 0o644); err != nil {
		t.Fatal(err)
	}
	return &syscall.Credential{Uid: 65534, Gid: 65534}
}

// Case 54: a file that another is writing is read when it is whole.
func TestHalfWrittenFileIsTriedAgain(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	file := n.write(t, "net.d/10-pods.conflist", podsConf[:60])
	done := make(chan string)
	go func() { out, _ := n.tool(t, nil, "wrap", "--no-probe", n.path("net.d")); done <- out }()
	time.Sleep(300 * time.Millisecond) // long enough that it has mostly looked once; sooner is no harm
	n.write(t, "net.d/10-pods.conflist", podsConf)
	if out := <-done; !strings.Contains(read(t, file), "ipam-guard") {
		t.Errorf("not wrapped: %s", out)
	}
}
