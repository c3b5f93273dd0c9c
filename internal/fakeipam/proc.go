package main

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ipam-guard/ipam-guard/internal/fakeipam/record"
)

// inherited lists the descriptors that were open when this process began. What
// Go opened since is closed on exec; what was inherited can't be.
func inherited() []record.FD {
	entries, _ := os.ReadDir("/proc/self/fd")
	fds := []record.FD{}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= 2 {
			continue
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC != 0 {
			continue
		}
		target, _ := os.Readlink("/proc/self/fd/" + e.Name())
		fds = append(fds, record.FD{FD: fd, Target: target})
	}
	return fds
}

func signalOf(name string) (syscall.Signal, error) {
	sig := unix.SignalNum("SIG" + name)
	if sig == 0 {
		return 0, fmt.Errorf("no such signal: %s", name)
	}
	return sig, nil
}

func ignore(name string) error {
	sig, err := signalOf(name)
	if err != nil {
		return err
	}
	signal.Ignore(sig)
	return nil
}

func die(name string) error {
	sig, err := signalOf(name)
	if err != nil {
		return err
	}
	dieOf(sig)
	return fmt.Errorf("die %s: still here", name)
}

// dieOf ends this process by the signal itself. Go turns a SIGSEGV into a
// panic and exit code 2, so its handler goes first.
func dieOf(sig syscall.Signal) {
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	var byDefault [4]uint64 // struct sigaction, all zero: SIG_DFL
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&byDefault)), 0, 8, 0, 0)
	_ = unix.Kill(unix.Getpid(), sig)
	time.Sleep(10 * time.Second) // any thread may get it, perhaps a moment later
}

func killParent() error { return unix.Kill(unix.Getppid(), unix.SIGKILL) }
