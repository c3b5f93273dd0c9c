package delegate

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
)

// FindBehind is Find for a guard that bears its delegate's name itself: what is
// this program, or a copy of it, is passed over, and folders of cniPath that
// come after the one that the program was called from (self, its own path) are
// searched first. With later, only those are.
func FindBehind(name, cniPath, self string, later bool) (string, error) {
	program, _ := os.Stat(own)
	before, after := split(cniPath, name, self)
	if !later {
		after = append(after, before...)
	}
	return search(name, cniPath, after, func(path string, info os.FileInfo) bool {
		return program != nil && (os.SameFile(info, program) || sameContent(path, info, program))
	})
}

// own is this program's file, also after another was renamed over it.
const own = "/proc/self/exe"

// split parts the folders of cniPath at the last one that is where self was
// called from: who always goes on from there comes to an end, also in a list with
// folders that occur twice. Is it none of them, all come after it.
func split(cniPath, name, self string) (before, after []string) {
	folders := filepath.SplitList(cniPath)
	for i := len(folders) - 1; i >= 0; i-- {
		if filepath.Join(folders[i], name) == filepath.Clean(self) {
			return folders[:i], append([]string(nil), folders[i+1:]...)
		}
	}
	return nil, append([]string(nil), folders...)
}

// sameContent reports whether a file is a copy of this program.
func sameContent(path string, info, program os.FileInfo) bool {
	if info.Size() != program.Size() {
		return false
	}
	a, err := os.Open(path)
	if err != nil {
		return false
	}
	defer a.Close()
	b, err := os.Open(own)
	if err != nil {
		return false
	}
	defer b.Close()
	x, y := make([]byte, chunk), make([]byte, chunk)
	for {
		n, errA := io.ReadFull(a, x)
		m, errB := io.ReadFull(b, y)
		if !bytes.Equal(x[:n], y[:m]) {
			return false
		}
		if errA != nil || errB != nil {
			return errA != nil && errB != nil // the sizes are the same: both have come to the end
		}
	}
}
