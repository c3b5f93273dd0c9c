package cluster

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// A child is a program that dies with this process.
type child struct {
	log  string
	cmd  *exec.Cmd
	done chan struct{}
}

// begin starts a program and notes what it says in a file. It gets SIGKILL when
// the thread that started it ends: so that thread waits for it.
func begin(log, program string, args ...string) (*child, error) {
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	c := &child{log: log, cmd: exec.Command(program, args...), done: make(chan struct{})}
	c.cmd.Stdout, c.cmd.Stderr = out, out
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := c.cmd.Start()
		started <- err
		if err == nil {
			_ = c.cmd.Wait() // told by ProcessState
			close(c.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("%s: %w", program, err)
	}
	return c, nil
}

func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	<-c.done
}

// ended says so if the program has ended by itself.
func (c *child) ended() error {
	select {
	case <-c.done:
		return fmt.Errorf("%s has ended: %v", c.cmd.Path, c.cmd.ProcessState)
	default:
		return nil
	}
}

// removeAtOurEnd starts a process that removes the folder when it is told to, or
// when we are no more: a test that panics cleans up nothing.
func removeAtOurEnd(dir string) (now func(), err error) {
	cmd := exec.Command("sh", "-c", `cat >/dev/null; for i in 1 2 3; do rm -rf "$1" && break; sleep 1; done`, "sh", dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() {
		_ = pipe.Close()
		_ = cmd.Wait()
	}, nil
}

// freePorts are ports that nobody on loopback listens on. Each is held until all
// are known, so that they differ.
func freePorts(n int) ([]int, error) {
	if n == 0 {
		return nil, nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	others, err := freePorts(n - 1)
	return append(others, l.Addr().(*net.TCPAddr).Port), err
}
