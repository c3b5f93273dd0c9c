//go:build crash || integration

package crash_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// traceEnv makes this test binary a tracer: "N REPORT BINARY". It runs BINARY in
// its own place and kills it before the N-th counted call; 0: never. REPORT gets
// a line for each counted call, and says at its end whether a kill was sent.
const traceEnv = "CRASH_TRACE"

const exitRefused = 98 // ptrace is not allowed here

// counted are the calls that a kill comes before. Those that only read are not
// among them, but for openat: what a kill before them leaves is left by one
// before the next.
var counted = map[uint64]string{
	unix.SYS_OPENAT: "openat", unix.SYS_OPENAT2: "openat2", unix.SYS_MKDIRAT: "mkdirat", unix.SYS_LINKAT: "linkat",
	unix.SYS_SYMLINKAT: "symlinkat", unix.SYS_RENAMEAT: "renameat", unix.SYS_RENAMEAT2: "renameat2",
	unix.SYS_UNLINKAT: "unlinkat", unix.SYS_WRITE: "write", unix.SYS_PWRITE64: "pwrite64",
	unix.SYS_FTRUNCATE: "ftruncate", unix.SYS_FLOCK: "flock", unix.SYS_CLONE: "clone", unix.SYS_CLONE3: "clone3",
	unix.SYS_EXECVE: "execve", unix.SYS_WAITID: "waitid", unix.SYS_WAIT4: "wait4", unix.SYS_FSYNC: "fsync",
	unix.SYS_KILL: "kill", unix.SYS_PIDFD_SEND_SIGNAL: "pidfd_send_signal",
}

// inChild are those of the process that is to become the delegate, until it does.
var inChild = map[uint64]string{
	unix.SYS_PRCTL: "prctl", unix.SYS_SETPGID: "setpgid", unix.SYS_DUP3: "dup3", unix.SYS_EXECVE: "execve",
}

// tracer follows the threads of one process, and its children until they
// execute something.
type tracer struct {
	pid    int // the guard
	known  map[int]bool
	begun  bool // the node has been touched
	at     int
	n      int
	report bytes.Buffer
}

// trace is the whole life of a tracer.
func trace(order string) int {
	parts := strings.SplitN(order, " ", 3)
	at, err := strconv.Atoi(parts[0])
	if err != nil || len(parts) != 3 {
		fmt.Fprintf(os.Stderr, "%s: %q\n", traceEnv, order)
		return 2
	}
	runtime.LockOSThread() // a tracer is a thread
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, traceEnv+"=") })
	attr := &syscall.ProcAttr{Env: env, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Ptrace: true}}
	pid, err := syscall.ForkExec(parts[2], []string{parts[2]}, attr)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
		return exitRefused
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	tr := &tracer{pid: pid, known: map[int]bool{pid: true}, at: at}
	status := tr.follow()
	if err := os.WriteFile(parts[1], tr.report.Bytes(), 0o600); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

func (tr *tracer) follow() (status syscall.WaitStatus) {
	const options = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEFORK |
		unix.PTRACE_O_TRACEVFORK | unix.PTRACE_O_TRACEEXEC | unix.PTRACE_O_EXITKILL
	for began := false; ; {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, unix.WALL, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil: // no one is left
			return status
		case ws.Exited() || ws.Signaled():
			if pid == tr.pid {
				status = ws
			}
			continue
		case !began:
			began = true
			_ = unix.PtraceSetOptions(pid, options)
			_ = unix.PtraceSyscall(pid, 0)
			continue
		}
		tr.stopped(pid, ws)
	}
}

// stopped deals with one stop of one thread and lets it go on.
func (tr *tracer) stopped(pid int, ws syscall.WaitStatus) {
	first := !tr.known[pid]
	tr.known[pid] = true
	sig := 0
	switch stop := ws.StopSignal(); {
	case stop == unix.SIGTRAP|0x80:
		tr.call(pid)
	case stop == unix.SIGTRAP && ws.TrapCause() == unix.PTRACE_EVENT_EXEC:
		_ = unix.PtraceDetach(pid) // it is the delegate now
		return
	case stop == unix.SIGTRAP && ws.TrapCause() > 0:
	case stop == unix.SIGSTOP && first: // so a traced thread begins
	default:
		sig = int(stop)
	}
	_ = unix.PtraceSyscall(pid, sig)
}

// call counts a call that is about to be made, and kills before the right one.
func (tr *tracer) call(pid int) {
	var info struct {
		op      uint8
		_       [3]uint8
		arch    uint32
		ip, sp  uint64
		nr      uint64
		args    [6]uint64
		padding [2]uint64
	}
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(pid), unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info)), 0, 0)
	if errno != 0 || info.op != unix.PTRACE_SYSCALL_INFO_ENTRY {
		return
	}
	name, path := counted[info.nr], ""
	if tr.child(pid) {
		if name = inChild[info.nr]; name != "" {
			name = "child:" + name
		}
	} else if slices.Contains([]string{"openat", "mkdirat", "unlinkat", "symlinkat"}, name) {
		path = text(pid, uintptr(info.args[1]))
		if name == "openat" && info.args[2]&(unix.O_CREAT|unix.O_TMPFILE&^unix.O_DIRECTORY) == 0 {
			name = "openat, reading"
		}
	}
	cwd, _ := os.Getwd()
	tr.begun = tr.begun || strings.HasPrefix(path, "/proc/self/cwd/") || strings.HasPrefix(path, cwd)
	thread := (name == "clone" || name == "clone3") && info.args[0]&unix.CLONE_THREAD != 0
	if !tr.begun || name == "" || thread {
		return
	}
	tr.n++
	fmt.Fprintf(&tr.report, "%s\t%s\n", name, strings.TrimPrefix(path, cwd))
	if tr.n == tr.at {
		_ = unix.Kill(tr.pid, unix.SIGKILL)
		fmt.Fprintln(&tr.report, killedLine)
	}
}

const killedLine = "killed"

// child says whether a thread is not the guard's.
func (tr *tracer) child(pid int) bool {
	_, err := os.Stat(fmt.Sprintf("/proc/%d/task/%d", tr.pid, pid))
	return err != nil
}

// text reads a string of a stopped thread.
func text(pid int, addr uintptr) string {
	buf := make([]byte, 512)
	n, _ := unix.PtracePeekData(pid, addr, buf)
	s, _, _ := bytes.Cut(buf[:n], []byte{0})
	return string(s)
}
