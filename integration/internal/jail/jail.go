// Package jail gives a runtime a machine of its own: mount, network and process
// namespaces in which it and all that it starts live, with empty folders where
// runtimes keep their state. Whatever is in there, however it got there, ends
// with the jail, and the jail ends with the test or with the test process,
// whichever is first. Files below the test's own folder are shared with it, as
// is the file system at large: a jail keeps in, it doesn't keep out.
package jail

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Init is the first process: it mounts its own /proc, and once it ignores its
// children the kernel reaps them.
const initScript = `mount --make-rprivate / && mount -t proc proc /proc && echo ready && trap '' CHLD && exec sleep infinity`

// private are the folders that a runtime shares with others of its kind unless
// they are its own: CNI's cache, shims' sockets, named namespaces.
func private() []string { return []string{"/var/lib", "/run"} }

// Jail is one such machine.
type Jail struct {
	Name string // of no other jail on this machine; its control group's, too

	init *exec.Cmd
	do   chan func()
}

// New starts one. It ends with the test.
func New(t testing.TB) *Jail {
	t.Helper()
	j := &Jail{do: make(chan func())}
	failed := make(chan error)
	go j.live(failed)
	if err := <-failed; err != nil {
		t.Fatalf("a jail for a runtime: %v", err)
	}
	j.Name = fmt.Sprintf("%s%d-%d", prefix, os.Getpid(), j.init.Process.Pid)
	sweep()
	t.Cleanup(func() { j.end(t) })
	return j
}

// live is the thread that starts everything in the jail. At the end it dies,
// since it can't go back.
func (j *Jail) live(failed chan<- error) {
	runtime.LockOSThread()
	err := j.start()
	if err == nil {
		err = j.enter()
	}
	failed <- err
	if err != nil {
		return
	}
	for f := range j.do {
		f()
	}
}

func (j *Jail) start() error {
	j.init = exec.Command("/bin/sh", "-c", initScript)
	j.init.Stderr = os.Stderr
	j.init.Dir = "/"
	j.init.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID,
		Pdeathsig:  unix.SIGKILL,
	}
	out, err := j.init.StdoutPipe()
	if err != nil {
		return err
	}
	if err := j.init.Start(); err != nil {
		return err
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		return fmt.Errorf("its first process said %q: %w", line, err)
	}
	return nil
}

// enter moves this thread into the jail and furnishes it.
func (j *Jail) enter() error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	for name, kind := range map[string]int{"net": unix.CLONE_NEWNET, "pid": unix.CLONE_NEWPID} {
		if err := j.join(name, kind); err != nil {
			return err
		}
	}
	if err := j.join("mnt", unix.CLONE_NEWNS); err != nil {
		return err
	}
	for _, dir := range private() {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	if err := os.MkdirAll("/var/lib/cni", 0o755); err != nil {
		return err
	}
	return loopback()
}

func (j *Jail) join(name string, kind int) error {
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", j.init.Process.Pid, name))
	if err != nil {
		return err
	}
	defer f.Close()
	return os.NewSyscallError("setns "+name, unix.Setns(int(f.Fd()), kind))
}

// Do calls f on a thread that is in the jail's network and mount namespaces.
func (j *Jail) Do(f func()) {
	done := make(chan struct{})
	j.do <- func() { defer close(done); f() }
	<-done
}

// Command is a process that was started in a jail.
type Command struct {
	*exec.Cmd
	done chan struct{}
	err  error
}

// Wait waits for its end, as often as one likes.
func (c *Command) Wait() error {
	<-c.done
	return c.err
}

// Start starts a command in the jail. It ends with the jail at the latest, and
// is waited for whether the caller does so or not: a process namespace is not
// gone before all who were in it are reaped.
func (j *Jail) Start(cmd *exec.Cmd) (*Command, error) {
	var err error
	j.Do(func() { err = cmd.Start() })
	if err != nil {
		return nil, err
	}
	c := &Command{Cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.err = cmd.Wait()
	}()
	return c, nil
}

// Run runs a command in the jail to its end, and returns what it said.
func (j *Jail) Run(cmd *exec.Cmd) (string, error) {
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	c, err := j.Start(cmd)
	if err == nil {
		err = c.Wait()
	}
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out.String())
	}
	return out.String(), err
}

// Path is where a file of the jail is found from outside.
func (j *Jail) Path(path string) string {
	return filepath.Join(fmt.Sprintf("/proc/%d/root", j.init.Process.Pid), path)
}

// Bind puts a file of the test's over one of the jail's.
func (j *Jail) Bind(source, target string) error {
	var err error
	j.Do(func() { err = unix.Mount(source, target, "", unix.MS_BIND, "") })
	return os.NewSyscallError("bind "+target, err)
}

// end kills all that is in there: the kernel does so when the first process of
// a process namespace dies.
func (j *Jail) end(t testing.TB) {
	_ = j.init.Process.Kill()
	_ = j.init.Wait()
	close(j.do)
	if err := removeGroups(j.Name); err != nil {
		t.Error(err)
	}
}
