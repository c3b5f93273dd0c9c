//go:build integration || results

package crio_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/ipam-guard/ipam-guard/integration/internal/jail"
)

// inside runs plugins in a jail, and otherwise as the CNI library does: at the
// deadline only the plugin itself is killed, and its pipes are read to the end.
type inside struct {
	invoke.RawExec
	version.PluginDecoder
	*jail.Jail
	dir string
}

func (e *inside) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, path)
	cmd.Dir, cmd.Env = e.dir, environ
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &stdout, io.Writer(&stderr)
	c, err := e.Start(cmd)
	if err == nil {
		err = c.Wait()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s%s", err, stdout.String(), stderr.String())
	}
	return stdout.Bytes(), nil
}
