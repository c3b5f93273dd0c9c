package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A call for a pod that began before the configuration was unwrapped may have yet
// to start the guard, and no record tells of it. So the binary outlives such calls.
const (
	reload   = time.Second      // by then a runtime has read its folder again
	lastCall = 30 * time.Second // one that takes longer is left, and the binary with it
)

// settle waits until the calls are over that may still look for the guard in one
// of these folders, and returns how many are not.
func settle(ctx context.Context, folders []string) int {
	wait(ctx, reload)
	running := calls(folders)
	for end := time.Now().Add(lastCall); len(running) > 0 && time.Now().Before(end) && ctx.Err() == nil; {
		wait(ctx, 100*time.Millisecond)
		now := calls(folders)
		running = slices.DeleteFunc(running, func(c call) bool { return !slices.Contains(now, c) })
	}
	return len(running)
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// call is a process, by its id and when it began.
type call struct{ dir, began string }

// calls are those that run as plugins with one of these folders in their CNI_PATH.
func calls(folders []string) (found []call) {
	paths, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // gone meanwhile
		}
		_, after, is := strings.Cut("\x00"+string(text), "\x00CNI_PATH=")
		where, _, _ := strings.Cut(after, "\x00")
		if !is || !slices.ContainsFunc(filepath.SplitList(where), oneOf(folders)) {
			continue
		}
		dir := filepath.Dir(path)
		if began := beganAt(dir); began != "" {
			found = append(found, call{dir, began})
		}
	}
	return found
}

// oneOf tells whether a folder is one of these, whatever it is called there.
func oneOf(folders []string) func(string) bool {
	return func(dir string) bool {
		return slices.ContainsFunc(folders, func(f string) bool {
			var a, b unix.Stat_t
			return filepath.Clean(dir) == filepath.Clean(f) ||
				unix.Stat(dir, &a) == nil && unix.Stat(f, &b) == nil && a.Dev == b.Dev && a.Ino == b.Ino
		})
	}
}

// beganAt is the time in a process' stat, "" if it is at its end.
func beganAt(dir string) string {
	text, _ := os.ReadFile(dir + "/stat")
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(f) < 20 || f[0] == "Z" || f[0] == "X" {
		return ""
	}
	return f[19]
}
