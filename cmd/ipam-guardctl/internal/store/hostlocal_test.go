package store_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ipam-guard/ipam-guard/cmd/ipam-guardctl/internal/store"
)

// What stands in host-local's folder, of all versions, and what doesn't belong
// there; neither a pipe nor a link holds the reader.
func TestHostLocal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"198.51.100.2": "pod\r\neth0", "2001:db8::2": "pod\r\neth0", "198.51.100.3": "old-pod", "198.51.100.4": "",
		"lock": "", "last_reserved_ip.0": "198.51.100.2", "README": "mine",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(dir, "198.51.100.5"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("198.51.100.2", filepath.Join(dir, "198.51.100.6")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "198.51.100.7"), 0o700); err != nil {
		t.Fatal(err)
	}
	held, err := store.HostLocal(filepath.Dir(dir), filepath.Base(dir))
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, h := range held {
		address := "none"
		if h.Address.IsValid() {
			address = h.Address.String()
		}
		if h.Network != filepath.Base(dir) || filepath.Dir(h.Place) != dir {
			t.Errorf("%+v", h)
		}
		have = append(have, filepath.Base(h.Place)+" "+address+" "+h.Container+" "+h.IfName)
	}
	want := []string{
		"198.51.100.2 198.51.100.2 pod eth0", "198.51.100.3 198.51.100.3 old-pod ", "198.51.100.4 198.51.100.4  ",
		"198.51.100.5 none  ", "198.51.100.6 none  ", "198.51.100.7 none  ", "2001:db8::2 2001:db8::2 pod eth0", "README none  ",
	}
	slices.Sort(have)
	if !slices.Equal(have, want) {
		t.Errorf("%q, want %q", have, want)
	}
	if held, err := store.HostLocal(dir, "nowhere"); err != nil || len(held) > 0 {
		t.Errorf("no folder: %v, %v", held, err)
	}
}
