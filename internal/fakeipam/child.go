package main

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

const self = "/proc/self/exe"

// child is what this binary does when it is not a plugin:
//
//	hold D              live for D and do nothing
//	runtime REPORT BIN  run BIN as a runtime would, see asRuntime
func child(args []string) int {
	switch {
	case len(args) == 2 && args[0] == "hold":
		if err := sleep(args[1]); err != nil {
			return broken("hold", err)
		}
		return 0
	case len(args) == 3 && args[0] == "runtime":
		return asRuntime(args[1], args[2])
	}
	return broken("arguments", fmt.Errorf("what is %q", args))
}

// leaveChild starts a process that outlives this one and notes its pid in
// DIR/pids. Descriptors above 2 that we inherited are not closed on exec, so
// the child has them too.
func (r *run) leaveChild(d string, daemon bool) error {
	if _, err := time.ParseDuration(d); err != nil {
		return err
	}
	attr := &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}}
	if daemon {
		null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer null.Close()
		attr.Files = []uintptr{null.Fd(), null.Fd(), null.Fd()}
		attr.Sys = &syscall.SysProcAttr{Setsid: true}
	}
	pid, err := syscall.ForkExec(self, []string{"fakeipam-child", "hold", d}, attr)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(r.path("pids"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintf(f, "%d\n", pid)
	return err
}

// asRuntime runs a binary with our own stdio and environment and ends as it
// ends. It gives the binary a parent that a test can kill, and measures its
// memory: the kernel counts the parent's size at the fork as the child's, so
// the parent must be small, which a test process is not. The binary's pid goes
// to REPORT.pid, its peak in KiB to REPORT.
func asRuntime(report, binary string) int {
	pid, err := syscall.ForkExec(binary, []string{binary}, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
	if err != nil {
		return broken("runtime", err)
	}
	if err := publish(report+".pid", int64(pid)); err != nil {
		return exitBroken
	}
	var status syscall.WaitStatus
	var usage syscall.Rusage
	for {
		if _, err = syscall.Wait4(pid, &status, 0, &usage); err != syscall.EINTR {
			break
		}
	}
	if err != nil || publish(report, usage.Maxrss) != nil {
		return exitBroken
	}
	if status.Signaled() {
		dieOf(status.Signal())
	}
	return status.ExitStatus()
}

// publish makes a number appear whole.
func publish(path string, n int64) error {
	if err := os.WriteFile(path+".tmp", []byte(strconv.FormatInt(n, 10)), 0o666); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}
