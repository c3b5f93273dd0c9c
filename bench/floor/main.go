// Command floor is the least that a CNI plugin written in Go can do around a delegate: fork, exec, wait. It is what the
// guard is measured against, and no plugin: stdin, stdout, stderr and the environment go to the delegate as they are.
//
//	floor DELEGATE
package main

import (
	"os"
	"syscall"
)

func main() { os.Exit(run(os.Args)) }

func run(args []string) int {
	if len(args) != 2 {
		return 2
	}
	pid, err := syscall.ForkExec(args[1], args[1:], &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
	if err != nil {
		return 127
	}
	var status syscall.WaitStatus
	for {
		if _, err = syscall.Wait4(pid, &status, 0, nil); err != syscall.EINTR {
			break
		}
	}
	if err != nil || !status.Exited() {
		return 126
	}
	return status.ExitStatus()
}
