package hostlock_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipam-guard/ipam-guard/pkg/hostlock"
)

func sameFile(t *testing.T, fd uintptr, path string) bool {
	t.Helper()
	var a, b unix.Stat_t
	must(t, unix.Fstat(int(fd), &a))
	must(t, unix.Stat(path, &b))
	return a.Dev == b.Dev && a.Ino == b.Ino
}

// Cases 5, 6 and 8 (calico cni-plugin #985, antrea #8272, podman #13402, antrea #4604, cri-o #528).
func TestWhatIsNoLockFile(t *testing.T) {
	for name, test := range map[string]struct {
		make func(t *testing.T, path string)
		err  error // in the chain; nil: any
		want string
	}{
		"folder":     {func(t *testing.T, path string) { must(t, os.Mkdir(path, 0o755)) }, unix.EISDIR, "is a directory"},
		"named pipe": {func(t *testing.T, path string) { must(t, unix.Mkfifo(path, 0o600)) }, nil, "named pipe"},
		"named pipe that somebody has locked": {func(t *testing.T, path string) {
			must(t, unix.Mkfifo(path, 0o600))
			fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
			must(t, err)
			must(t, unix.Flock(fd, unix.LOCK_EX))
			t.Cleanup(func() { unix.Close(fd) })
		}, nil, "named pipe"},
		"socket": {func(t *testing.T, path string) {
			l, err := net.Listen("unix", path)
			must(t, err)
			t.Cleanup(func() { l.Close() })
		}, unix.ENXIO, "no such device"},
		"symbolic link": {func(t *testing.T, path string) {
			must(t, os.WriteFile(path+".target", nil, 0o600))
			must(t, os.Symlink(path+".target", path))
		}, unix.ELOOP, "symbolic link"},
		"dangling symbolic link": {func(t *testing.T, path string) {
			must(t, os.Symlink(path+".target", path))
		}, unix.ELOOP, "symbolic link"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "hostlock") // a socket's path is at most 108 bytes long
			must(t, err)
			t.Cleanup(func() { os.RemoveAll(dir) })
			path := filepath.Join(dir, "x.lock")
			test.make(t, path)
			refused(t, path, test.err, test.want, "remove what is there")
		})
	}
	t.Run("device", func(t *testing.T) { refused(t, "/dev/null", nil, "is a device", "remove what is there") })
	t.Run("a file in the folder's place", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		must(t, os.WriteFile(file, nil, 0o600))
		refused(t, filepath.Join(file, "x.lock"), unix.ENOTDIR, "not a directory", "lockDir")
	})
}

// refused asserts an OpenError soon, with that cause and that text.
func refused(t *testing.T, path string, cause error, want ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	_, err := hostlock.Acquire(ctx, time.Time{}, path, hostlock.Holder{}, nil)
	var open *hostlock.OpenError
	if !errors.As(err, &open) || open.Path != path {
		t.Fatalf("got %#v", err)
	}
	if cause != nil && !errors.Is(err, cause) {
		t.Errorf("%v isn't %v", err, cause)
	}
	for _, w := range append(want, path) {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q lacks %q", err, w)
		}
	}
}

// Case 8 (podman #13402): the lock folder is root's, the caller is not.
func TestFolderNotWritable(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Chmod(filepath.Dir(dir), 0o755))
	must(t, os.Chmod(dir, 0o555))
	t.Cleanup(func() { _ = os.Chmod(dir, 0o755) })
	asUser(t, func() {
		refused(t, filepath.Join(dir, "x.lock"), unix.EACCES, "permission denied", "lockDir")
		refused(t, filepath.Join(dir, "sub", "x.lock"), unix.EACCES, "permission denied", "lockDir")
	})
}

// Case 7 (azure-container-networking #364): a file that may only be read is as good a lock.
func TestReadOnlyFile(t *testing.T) {
	path := lockPath(t)
	must(t, os.Chmod(filepath.Dir(filepath.Dir(path)), 0o755))
	must(t, os.Chmod(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte("{}"), 0o444))
	must(t, os.Chmod(path, 0o444))
	asUser(t, func() {
		var w warnings
		l, err := hostlock.Acquire(context.Background(), time.Time{}, path, hostlock.Holder{}, w.add)
		must(t, err)
		if len(w.lines) != 1 || !strings.Contains(w.lines[0], path) {
			t.Errorf("warnings: %q", w.lines)
		}
		l.Group(4711)
		if _, err := hostlock.TryAcquire(path, hostlock.Holder{}, nil); err == nil {
			t.Error("two hold the lock")
		}
		must(t, l.Unlock())
	})
	acquire(t, path)
}

// asUser runs f with the file permissions of an ordinary user.
func asUser(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		f()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		_ = unix.Setfsuid(65534)
		if uid, _ := unix.SetfsuidRetUid(-1); uid != 65534 {
			t.Errorf("can't act as another user: fsuid is %d", uid)
			return
		}
		f()
	}()
	<-done
}

// Case 7 (azure-container-networking #364, #464, #762): whatever an earlier holder, or anybody, left in the file.
func TestAnyContent(t *testing.T) {
	self := hostlock.Mark()
	pid, start, _ := strings.Cut(self, ":")
	for name, content := range map[string]string{
		"empty":            "",
		"junk":             "\x00\xff{]",
		"a bare pid":       "4711\n",
		"dead pid":         `{"pid":4194305,"start":1,"pgid":4194305}`,
		"pid 1":            `{"pid":1,"start":1,"pgid":1}`,
		"negative":         `{"pid":-1,"start":1,"pgid":-1}`,
		"ourselves":        `{"pid":` + pid + `,"start":` + start + `}`,
		"wrong types":      `{"pid":"x","since":{}}`,
		"longer than ours": strings.Repeat("x", 100_000),
	} {
		t.Run(name, func(t *testing.T) {
			path := lockPath(t)
			must(t, os.WriteFile(path, []byte(content), 0o600))
			foreign, err := os.Open(path) // somebody holds it and writes nothing: waiters see the content
			must(t, err)
			defer foreign.Close()
			must(t, syscall.Flock(int(foreign.Fd()), syscall.LOCK_EX))
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			defer cancel()
			var busy *hostlock.BusyError
			if _, err := hostlock.Acquire(ctx, time.Time{}, path, hostlock.Holder{}, func(s string) { t.Error(s) }); !errors.As(err, &busy) {
				t.Fatalf("got %v", err)
			}
			if strings.ContainsAny(busy.Error(), "\n\x00") {
				t.Errorf("not one line: %q", busy)
			}
			foreign.Close()

			l := acquire(t, path)
			l.Group(4711)
			b, err := os.ReadFile(path)
			must(t, err)
			var h hostlock.Holder
			if err := json.Unmarshal(b, &h); err != nil || h.PID != os.Getpid() || h.PGID != 4711 || h.Verb != "ADD" {
				t.Errorf("%v: %s", err, b)
			}
		})
	}
}

func TestHolderIsOneLine(t *testing.T) {
	h := hostlock.Holder{PID: 7, Verb: "DEL", Network: "a\nb\x1b", Container: strings.Repeat("c", 1000), Since: time.Unix(0, 0).UTC()}
	want := `pid 7, verb "DEL", network "a\nb\x1b", container "` + strings.Repeat("c", 80) + `", since 1970-01-01T00:00:00Z`
	if got := h.String(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := (hostlock.Holder{}).String(); got != "pid 0" {
		t.Errorf("zero value: %s", got)
	}
}
