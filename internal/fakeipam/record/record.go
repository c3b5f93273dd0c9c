// Package record is what the fake delegate writes down about its calls, and
// how tests read it back. One call is two lines of calls.jsonl, each appended
// by a single write: one when it starts, one when it ends normally. A call
// without the second line was killed or is still running.
package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// Call is one run of the delegate.
type Call struct {
	N         int      `json:"n"`   // over all verbs, from 1
	Nth       int      `json:"nth"` // of this verb, from 1 since the script was set
	Verb      string   `json:"verb"`
	Container string   `json:"container"`
	IfName    string   `json:"ifname"`
	Netns     string   `json:"netns"`
	Args      string   `json:"args"`
	Path      string   `json:"path"`
	Above     string   `json:"above"` // IPAM_GUARD_ABOVE
	Env       []string `json:"env"`
	Stdin     string   `json:"stdin"`
	StdinRaw  []byte   `json:"stdin_base64,omitempty"` // only if stdin is not UTF-8
	PID       int      `json:"pid"`
	PPID      int      `json:"ppid"`
	PGID      int      `json:"pgid"`
	Start     int64    `json:"start_ns"` // see Now
	FDs       []FD     `json:"fds"`      // inherited, 0 to 2 left out
	Overlap   bool     `json:"overlap"`  // another ADD, DEL or GC of the same folder was running

	Ended  bool   `json:"-"`
	Exit   int    `json:"-"`
	End    int64  `json:"-"` // see Now
	Broken string `json:"-"` // what was wrong with the script itself
}

// FD is an inherited descriptor and where /proc/self/fd says that it leads.
type FD struct {
	FD     int    `json:"fd"`
	Target string `json:"target"`
}

type end struct {
	N      int    `json:"end"`
	Exit   int    `json:"exit"`
	End    int64  `json:"end_ns"`
	Broken string `json:"broken,omitempty"`
}

// Now is CLOCK_MONOTONIC in nanoseconds, the same clock in every process.
func Now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}

// Begin appends the first line of a call.
func Begin(dir string, c Call) error {
	if !utf8.ValidString(c.Stdin) {
		c.StdinRaw = []byte(c.Stdin)
	}
	return appendLine(dir, c)
}

// Finish appends the second line of a call.
func Finish(dir string, n, exit int, broken string) error {
	return appendLine(dir, end{N: n, Exit: exit, End: Now(), Broken: broken})
}

func appendLine(dir string, v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path(dir), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Write(append(line, '\n'))
	return err
}

func path(dir string) string { return filepath.Join(dir, "calls.jsonl") }

// Read returns the calls recorded in dir, in the order in which they started.
// No file means no calls.
func Read(dir string) ([]Call, error) {
	data, err := os.ReadFile(path(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	// What follows the last newline is a line that is being written.
	whole := data[:bytes.LastIndexByte(data, '\n')+1]
	var calls []Call
	ends := map[int]end{}
	for line := range bytes.Lines(whole) {
		if err := readLine(line, &calls, ends); err != nil {
			return nil, fmt.Errorf("%s: %w in %q", path(dir), err, line)
		}
	}
	for i := range calls {
		calls[i].join(ends)
	}
	slices.SortFunc(calls, func(a, b Call) int { return a.N - b.N })
	return calls, nil
}

func readLine(line []byte, calls *[]Call, ends map[int]end) error {
	var e end
	if err := json.Unmarshal(line, &e); err != nil {
		return err
	}
	if e.N != 0 {
		ends[e.N] = e
		return nil
	}
	var c Call
	if err := json.Unmarshal(line, &c); err != nil {
		return err
	}
	*calls = append(*calls, c)
	return nil
}

func (c *Call) join(ends map[int]end) {
	if c.StdinRaw != nil {
		c.Stdin = string(c.StdinRaw)
	}
	if e, ok := ends[c.N]; ok {
		c.Ended, c.Exit, c.End, c.Broken = true, e.Exit, e.End, e.Broken
	}
}
