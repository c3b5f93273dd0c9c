package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/plugins/pkg/ns"
)

// runner runs plugins for libcni: in the node's namespace and, unlike libcni's
// own, each in a process group that can be stopped as a whole.
type runner struct {
	*invoke.DefaultExec
	netns ns.NetNS // nil: where we are
	env   []string
}

func newRunner(netns ns.NetNS, env ...string) *runner {
	if netns == nil {
		// host-local would refuse a container whose namespace is its own.
		env = append(env, "CNI_NETNS_OVERRIDE=1")
	}
	return &runner{DefaultExec: &invoke.DefaultExec{RawExec: &invoke.RawExec{}}, netns: netns, env: env}
}

// ExecPlugin runs one plugin and returns its stdout, or a refusal.
func (r *runner) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	var stdout bytes.Buffer
	cmd := exec.CommandContext(ctx, path)
	cmd.Env = slices.Concat(environ, r.env)
	cmd.Stdin, cmd.Stdout = bytes.NewReader(stdin), &stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	err := r.run(cmd)
	if err == nil {
		return stdout.Bytes(), nil
	}
	return nil, refused(ctx, cmd, err, stdout.Bytes())
}

// run starts the command on a thread that is in the node's namespace.
func (r *runner) run(cmd *exec.Cmd) error {
	if r.netns == nil {
		return cmd.Run()
	}
	return r.netns.Do(func(ns.NetNS) error { return cmd.Run() })
}

// refusal is what a runtime is told by a plugin that failed.
type refusal struct {
	rc    int
	cause types.Error
}

func (r *refusal) Error() string {
	return fmt.Sprintf("rc %d, code %d: %s", r.rc, r.cause.Code, r.cause.Msg)
}

func refused(ctx context.Context, cmd *exec.Cmd, err error, stdout []byte) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	r := &refusal{rc: exit.ExitCode()}
	if json.Unmarshal(stdout, &r.cause) != nil {
		return fmt.Errorf("%s: %w, stdout %q", cmd.Path, err, stdout)
	}
	return r
}
