package jail

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// prefix begins the names of all jails.
const prefix = "ipam-guard-test-"

// groups are the control groups of a jail, in each hierarchy that there is: of
// the first version, of the second, or of both side by side.
func groups(name string) []string {
	var found []string
	for _, pattern := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
		dirs, _ := filepath.Glob(pattern + name)
		found = append(found, dirs...)
	}
	return found
}

// removeGroups removes what a runtime has made for its pods. Their processes
// were killed a moment ago: the kernel may still be busy with them.
func removeGroups(name string) error {
	var err error
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		err = nil
		for _, dir := range groups(name) {
			err = errors.Join(err, removeTree(dir))
		}
		if err == nil {
			return nil
		}
	}
	return err
}

// removeTree removes folders, the innermost first; their files are the kernel's.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if e.IsDir() {
			err = errors.Join(err, removeTree(filepath.Join(dir, e.Name())))
		}
	}
	if rm := unix.Rmdir(dir); rm != nil && !errors.Is(rm, fs.ErrNotExist) {
		err = errors.Join(err, &fs.PathError{Op: "rmdir", Path: dir, Err: rm})
	}
	return err
}

// sweep removes the groups of test processes that were killed.
func sweep() {
	for _, dir := range groups(prefix + "*") {
		name := filepath.Base(dir)
		pid, _, _ := strings.Cut(strings.TrimPrefix(name, prefix), "-")
		if n, err := strconv.Atoi(pid); err == nil && !guardtest.Alive(n) {
			_ = removeTree(dir)
		}
	}
}
