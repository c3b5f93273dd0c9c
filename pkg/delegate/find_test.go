package delegate_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/containernetworking/cni/pkg/invoke"

	"github.com/ipam-guard/ipam-guard/pkg/delegate"
)

func TestFind(t *testing.T) {
	root := t.TempDir()
	first, second, third := filepath.Join(root, "1"), filepath.Join(root, "2"), filepath.Join(root, "3")
	write(t, filepath.Join(first, "guard"), "guard")
	write(t, filepath.Join(first, "a", "inner"), "a folder is not a plugin")
	write(t, filepath.Join(second, "a"), "real")
	write(t, filepath.Join(third, "a"), "later")
	write(t, filepath.Join(third, "guard"), "real")
	for from, to := range map[string]string{
		filepath.Join(first, "linked"): filepath.Join(second, "a"),
		filepath.Join(first, "broken"): filepath.Join(root, "nothing"),
	} {
		if err := os.Symlink(to, from); err != nil {
			t.Fatal(err)
		}
	}
	all := strings.Join([]string{first, filepath.Join(root, "absent"), second, third}, ":")

	for _, tt := range []struct {
		name, cniPath, want string
	}{
		{"a", all, second + "/a"},
		{"a", third + ":" + second, third + "/a"},
		{"linked", all, first + "/linked"},
		{"guard", all, first + "/guard"},
		{"broken", all, ""},
		{"nothing", all, ""},
		{"a", "", ""},
		{"", all, ""},
		{".", all, ""},
		{"..", all, ""},
		{"1/a", root, ""},
		{"../2/a", first, ""},
	} {
		got, err := delegate.Find(tt.name, tt.cniPath)
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("Find(%q, %q) = %q, %v; want %q", tt.name, tt.cniPath, got, err, tt.want)
		}
		if tt.want == "" {
			wantMissing(t, err, tt.name)
		}
		if tt.name == "." || tt.name == ".." {
			continue
		}
		if libcni, _ := invoke.FindInPath(tt.name, filepath.SplitList(tt.cniPath)); got != libcni {
			t.Errorf("Find(%q, %q) = %q; libcni gives %q", tt.name, tt.cniPath, got, libcni)
		}
	}
}

// Behind a program of that name: never itself, by another name or path, nor a
// copy; later folders first, and below another guard only those.
func TestFindBehind(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	dir := func(name string) string { return filepath.Join(root, name) }
	write(t, dir("before/p"), "another version")
	write(t, dir("copy/p"), string(text))
	write(t, dir("real/p"), "real")
	write(t, dir("own/other"), "")
	for _, link := range []string{"own/p", "twin/p"} {
		_ = os.Mkdir(filepath.Dir(dir(link)), 0o755)
		if err := os.Symlink(self, dir(link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		path  []string
		self  string
		later bool
		want  string
	}{
		{[]string{"own", "real"}, "own/p", false, "real/p"},
		{[]string{"own", "twin", "copy", "real"}, "own/p", true, "real/p"},
		{[]string{"before", "own", "real"}, "own/p", false, "real/p"},
		{[]string{"before", "own"}, "own/p", false, "before/p"},
		{[]string{"before", "own"}, "own/p", true, ""},
		{[]string{"own", "before", "own", "real"}, "own/p", true, "real/p"},
		{[]string{"own", "real"}, "elsewhere/p", true, "real/p"},
		{[]string{"own"}, "own/p", false, ""},
		{nil, "own/p", false, ""},
	} {
		var folders []string
		for _, f := range tt.path {
			folders = append(folders, dir(f)+"/")
		}
		got, err := delegate.FindBehind("p", strings.Join(folders, ":"), dir(tt.self), tt.later)
		want := tt.want
		if want != "" {
			want = dir(want)
		}
		if got != want || (err == nil) != (want != "") {
			t.Errorf("FindBehind(%v, %s, %v) = %q, %v; want %q", tt.path, tt.self, tt.later, got, err, want)
		}
		if want == "" {
			wantMissing(t, err, "p")
		}
	}
}

// What the kernel won't execute is missing too.
func TestRunMissing(t *testing.T) {
	folder := t.TempDir()
	file := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(folder, name)
		write(t, path, content)
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	loop := filepath.Join(folder, "loop")
	if err := os.Symlink(loop, loop); err != nil {
		t.Fatal(err)
	}
	plain := file("plain", "#!/bin/sh\n", 0o644)
	for path, want := range map[string]error{
		filepath.Join(folder, "absent"):               syscall.ENOENT,
		file("lost", "#!/no/such/interpreter", 0o755): syscall.ENOENT,
		plain:                            syscall.EACCES,
		file("text", "neither\n", 0o755): syscall.ENOEXEC,
		filepath.Join(plain, "below"):    syscall.ENOTDIR,
		loop:                             syscall.ELOOP,
	} {
		r := delegate.Cmd{Path: path}.Run(context.Background())
		if r.End != delegate.NotStarted || !errors.Is(r.Err, want) {
			t.Errorf("%s: %v, %v; want %v", path, r.End, r.Err, want)
		}
		wantMissing(t, r.Err, filepath.Base(path))
	}
}

// wantMissing also holds the text to what containerd would misread.
func wantMissing(t *testing.T, err error, name string) {
	t.Helper()
	var missing *delegate.MissingError
	if !errors.As(err, &missing) || missing.Name != name || missing.Err == nil {
		t.Fatalf("not a MissingError for %q: %v", name, err)
	}
	for _, bad := range []string{"not found", "no such file or directory"} {
		if strings.Contains(strings.ToLower(err.Error()), bad) {
			t.Errorf("the error says %q, which containerd counts as done: %v", bad, err)
		}
	}
	if !strings.Contains(err.Error(), name) {
		t.Errorf("the error doesn't name %q: %v", name, err)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
}
