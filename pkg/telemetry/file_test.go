package telemetry_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"

	"github.com/ipam-guard/ipam-guard/pkg/telemetry"
)

func TestCheckFile(t *testing.T) {
	// Case 35: a log file that is stdout is refused (aws vpc-cni #1248).
	for _, tt := range []struct{ path, refused string }{
		{"", ""},
		{"/var/log/ipam-guard/ipam-guard.log", ""},
		{"/var/../log", ""},
		{"/devices/log", ""},
		{"/var/log/stdout", ""},
		{"stdout", "for the result alone"},
		{"stderr", "not an absolute path"},
		{"log/guard.log", "not an absolute path"},
		{"-", "not an absolute path"},
		{"/var/log/", "is a folder"},
		{"/dev/stdout", "lies in /dev"},
		{"/dev/fd/1", "lies in /dev"},
		{"/dev", "lies in /dev"},
		{"//dev/stdout", "lies in /dev"},
		{"/var/../dev/./stdout", "lies in /dev"},
		{"/proc/self/fd/1", "lies in /proc"},
		{"/sys/log", "lies in /sys"},
	} {
		err := telemetry.CheckFile(tt.path)
		if tt.refused == "" {
			if err != nil {
				t.Errorf("CheckFile(%q) = %v, want nil", tt.path, err)
			}
			continue
		}
		if err == nil {
			t.Errorf("CheckFile(%q) = nil", tt.path)
			continue
		}
		for _, want := range []string{tt.refused, strconv.Quote(tt.path), "absolute path of a regular file"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("CheckFile(%q) = %q, want %q in it", tt.path, err, want)
			}
		}
	}
}

func TestNeverWritesToStdout(t *testing.T) {
	// Case 35: what CheckFile can't see, Write finds out (aws vpc-cni #1248).
	for name, file := range map[string]func(t *testing.T, out string) string{
		"the file itself":          func(_ *testing.T, out string) string { return out },
		"hard link":                func(t *testing.T, out string) string { return linked(t, os.Link, out) },
		"symlink":                  func(t *testing.T, out string) string { return linked(t, os.Symlink, out) },
		"symlink /dev/stdout":      func(t *testing.T, _ string) string { return linked(t, os.Symlink, "/dev/stdout") },
		"symlink /proc/self/fd/1":  func(t *testing.T, _ string) string { return linked(t, os.Symlink, "/proc/self/fd/1") },
		"/dev/stdout by its name":  func(*testing.T, string) string { return "/dev/stdout" },
		"/proc/self/fd/1 likewise": func(*testing.T, string) string { return "/proc/self/fd/1" },
	} {
		t.Run(name, func(t *testing.T) {
			out, err := os.Create(filepath.Join(t.TempDir(), "out"))
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			cmd := child{Lines: 1, File: file(t, out.Name()), MaxSize: 1}.command(t)
			var errs strings.Builder
			cmd.Stdout, cmd.Stderr = out, &errs
			if err := cmd.Run(); err != nil {
				t.Fatalf("child: %v", err)
			}
			if got := read(t, out.Name()); got != "" {
				t.Errorf("stdout got %q", got)
			}
			wantOneWarning(t, errs.String(), "regular file")
		})
	}
	t.Run("pipe", func(t *testing.T) {
		for _, target := range []string{"/dev/stdout", "/proc/self/fd/1"} {
			out, errs := child{Lines: 1, File: linked(t, os.Symlink, target)}.output(t)
			if out != "" {
				t.Errorf("stdout got %q", out)
			}
			wantOneWarning(t, errs, "not a regular file")
		}
	})
}

func linked(t *testing.T, link func(old, new string) error, target string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "guard.log")
	if err := link(target, path); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestWhatIsNoRegularFile(t *testing.T) {
	// Case 49: whatever is wrong with the log is a warning (cilium #48279).
	dir := t.TempDir()
	t.Chdir(dir)
	fifo := filepath.Join(dir, "fifo")
	read := filepath.Join(dir, "read")
	file := filepath.Join(dir, "file")
	if err := errors.Join(unix.Mkfifo(fifo, 0o600), unix.Mkfifo(read, 0o600), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(read, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for name, tt := range map[string]struct{ path, want string }{
		"FIFO":               {fifo, "open: no such device or address"},
		"FIFO with a reader": {read, "not a regular file"},
		"folder":             {dir, "is a directory"},
		"below a file":       {filepath.Join(file, "log"), "not a directory"},
		"link to a device":   {linked(t, os.Symlink, "/dev/null"), "not a regular file"},
		"link to itself":     {loop(t), "too many levels of symbolic links"},
		"relative":           {"guard.log", "not an absolute path"},
		// In its usual words, a runtime takes this for a DEL that is done.
		"link to nowhere": {linked(t, os.Symlink, filepath.Join(dir, "no", "log")), "what it links to, is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			wantOneWarning(t, writeInTime(t, telemetry.Log{File: tt.path}), tt.want)
		})
	}
	buf := make([]byte, 1)
	if n, _ := reader.Read(buf); n != 0 {
		t.Error("the FIFO's reader got something")
	}
	if _, err := os.Lstat("guard.log"); err == nil {
		t.Error("a relative path was created")
	}
}

func loop(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "loop")
	if err := os.Symlink(path, path); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLinkedFileAndFolder(t *testing.T) {
	target := filepath.Join(t.TempDir(), "guard.log")
	link := linked(t, os.Symlink, target)
	folder := linked(t, os.Symlink, filepath.Dir(target))
	for _, path := range []string{link, filepath.Join(folder, "guard.log")} {
		if told := writeInTime(t, telemetry.Log{File: path}); told != "" {
			t.Errorf("%s: %s", path, told)
		}
	}
	if got := decode(t, target); len(got) != 2 {
		t.Errorf("%d lines, want 2", len(got))
	}
}

func TestReadOnlyFolder(t *testing.T) {
	// Case 49: a read-only log folder fails nothing (cilium #48279).
	dir := t.TempDir()
	chmod(t, filepath.Dir(dir), 0o755) // for nobody to get there
	chmod(t, dir, 0o555)
	defer chmod(t, dir, 0o755)
	for _, file := range []string{"guard.log", "sub/guard.log"} {
		_, errs := child{DropRoot: true, Lines: 1, File: filepath.Join(dir, file)}.output(t)
		wantOneWarning(t, errs, "permission denied")
	}
}

func TestRotationRefusedByFolder(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "guard.log")
	if err := os.WriteFile(file, []byte("{}\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	chmod(t, file, 0o666)
	chmod(t, filepath.Dir(dir), 0o755)
	chmod(t, dir, 0o555)
	defer chmod(t, dir, 0o755)
	_, errs := child{DropRoot: true, Lines: 1, File: file, MaxSize: 1, Keep: 1}.output(t)
	wantOneWarning(t, errs, "rotate: lock:")
	if got := decode(t, file); len(got) != 2 {
		t.Errorf("%d lines, want 2: the line is written all the same", len(got))
	}
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func TestFullDisk(t *testing.T) {
	// Case 49: a full disk fails nothing (tigera operator #2402).
	dir := t.TempDir()
	full := child{Tmpfs: dir, ID: "a", Lines: 300, File: filepath.Join(dir, "guard.log"), Copy: true}
	t.Run("by the log", func(t *testing.T) {
		out, errs := mounting(t, full)
		wantWholeLinesAndWarnings(t, out, errs, 300, "is the disk full?")
	})
	t.Run("by others", func(t *testing.T) {
		full.Fill, full.Lines = true, 1
		out, errs := mounting(t, full)
		wantOneWarning(t, errs, "no space left on device")
		if out != "" {
			t.Errorf("in the file: %q", out)
		}
	})
}

// mounting runs the child in a mount namespace of its own.
func mounting(t *testing.T, c child) (stdout, stderr string) {
	t.Helper()
	cmd := c.command(t)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		ids := func(id int) []syscall.SysProcIDMap { return []syscall.SysProcIDMap{{HostID: id, Size: 1}} }
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER,
			UidMappings: ids(os.Getuid()), GidMappings: ids(os.Getgid()),
		}
	}
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	// Containers and distributions refuse at different points.
	refused := errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) || cmd.ProcessState.ExitCode() == mayNotMount
	if refused {
		t.Skip("a full disk takes a small file system, and this user may not mount one; TestTornLine needs none")
	}
	if err != nil {
		t.Fatalf("child: %v\n%s", err, errs.String())
	}
	return out.String(), errs.String()
}

func TestTornLine(t *testing.T) {
	// Case 49: a write that had room for a part only leaves no part behind.
	file := filepath.Join(t.TempDir(), "guard.log")
	out, errs := child{SizeLimit: 2001, ID: "a", Lines: 40, File: file, Copy: true}.output(t)
	wantWholeLinesAndWarnings(t, out, errs, 40, "bytes fitted")
}

// wantWholeLinesAndWarnings: each of the n lines is either whole in the file or
// one warning.
func wantWholeLinesAndWarnings(t *testing.T, out, errs string, n int, warning string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "copy")
	if err := os.WriteFile(file, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	lines, warnings := len(decode(t, file)), strings.Count(errs, "\n")
	if lines == 0 || warnings == 0 || lines+warnings != n || !strings.Contains(errs, warning) {
		t.Errorf("%d lines in the file and %d on stderr, want %d together, with %q\n%.1000s", lines, warnings, n, warning, errs)
	}
}

// writeInTime writes one line and returns what was told on stderr.
func writeInTime(t *testing.T, log telemetry.Log) string {
	t.Helper()
	var stderr strings.Builder
	log.Stderr, log.Stdout = &stderr, os.Stdout
	done := make(chan struct{})
	go func() {
		defer close(done)
		log.Write(telemetry.Line{Level: zapcore.InfoLevel, Msg: "m", Verb: "DEL"})
	}()
	select {
	case <-done:
		return stderr.String()
	case <-time.After(30 * time.Second):
		t.Fatal("Write hangs")
		return ""
	}
}

func wantOneWarning(t *testing.T, told, want string) {
	t.Helper()
	if !strings.HasPrefix(told, "ipam-guard: warn: log file ") || strings.Count(told, "\n") != 1 || !strings.Contains(told, want) {
		t.Errorf("stderr %q, want one warning with %q", told, want)
	}
	if strings.Contains(told, "no such file or directory") {
		t.Errorf("stderr %q: a runtime may take this for a DEL that is done", told)
	}
}
