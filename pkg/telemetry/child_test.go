package telemetry_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"

	"github.com/ipam-guard/ipam-guard/pkg/telemetry"
)

const childEnv = "TELEMETRY_TEST_CHILD"

// child is a process of its own that logs: what it does, in this order.
type child struct {
	DropRoot  bool   // become nobody
	Tmpfs     string // mount a file system of 16 KiB here
	Fill      bool   // and leave no room in it
	SizeLimit uint64 // RLIMIT_FSIZE
	ID        string // container of its lines, whose msg counts from 0
	Lines     int
	File      string
	MaxSize   int64
	Keep      int
	Copy      bool // at the end, the file to stdout
}

const mayNotMount = 4 // exit code

var errNoMount = errors.New("mount")

func TestMain(m *testing.M) {
	script := os.Getenv(childEnv)
	if script == "" {
		os.Exit(m.Run())
	}
	var c child
	if err := json.Unmarshal([]byte(script), &c); err != nil {
		panic(err)
	}
	if err := c.run(); err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		if errors.Is(err, errNoMount) {
			syscall.Exit(mayNotMount)
		}
		syscall.Exit(3)
	}
	// os.Exit would add what -cover has to say to stderr, and a second of -race's.
	syscall.Exit(0)
}

func (c child) run() error {
	if err := c.prepare(); err != nil {
		return err
	}
	// All children of a test start together, when their stdin ends.
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	log := telemetry.Log{File: c.File, MaxSize: c.MaxSize, Keep: c.Keep, Stderr: os.Stderr, Stdout: os.Stdout}
	for i := range c.Lines {
		log.Write(telemetry.Line{Level: zapcore.InfoLevel, Msg: strconv.Itoa(i), Verb: "DEL", Container: c.ID})
	}
	if !c.Copy {
		return nil
	}
	text, err := os.ReadFile(c.File)
	if err == nil {
		_, err = os.Stdout.Write(text)
	}
	return err
}

func (c child) prepare() error {
	if c.DropRoot && os.Getuid() == 0 {
		if err := unix.Setuid(65534); err != nil {
			return err
		}
	}
	if c.Tmpfs != "" {
		if err := unix.Mount("none", c.Tmpfs, "tmpfs", 0, "size=16k"); err != nil {
			return fmt.Errorf("%w: %w", errNoMount, err)
		}
	}
	if c.Fill {
		if err := os.WriteFile(filepath.Join(c.Tmpfs, "filler"), make([]byte, 32<<10), 0o600); !errors.Is(err, unix.ENOSPC) {
			return fmt.Errorf("filling: %w", err)
		}
	}
	if c.SizeLimit == 0 {
		return nil
	}
	return unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: c.SizeLimit, Max: c.SizeLimit})
}

func (c child) command(t *testing.T) *exec.Cmd {
	t.Helper()
	script, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+string(script))
	return cmd
}

// output runs the child to its end.
func (c child) output(t *testing.T) (stdout, stderr string) {
	t.Helper()
	cmd := c.command(t)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("child: %v\n%s", err, errs.String())
	}
	return out.String(), errs.String()
}

// together runs the children at the same time and returns what they said on stderr.
func together(t *testing.T, children ...child) string {
	t.Helper()
	errs, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer errs.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var cmds []*exec.Cmd
	for _, c := range children {
		cmd := c.command(t)
		cmd.Stdin, cmd.Stderr = r, errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		cmds = append(cmds, cmd)
	}
	r.Close()
	w.Close()
	for _, cmd := range cmds {
		if err := cmd.Wait(); err != nil {
			t.Errorf("child: %v", err)
		}
	}
	return read(t, errs.Name())
}
