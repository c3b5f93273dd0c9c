package fetched

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
)

// Containerd2Version is the release that is built.
const Containerd2Version = "v2.4.2"

// Containerd2 is a folder with containerd, its shim and ctr, built from their
// module. It needs a runc besides.
func (c Cache) Containerd2() (string, error) {
	const module = "github.com/containerd/containerd/v2/cmd/"
	name := fmt.Sprintf("containerd-%s-%s-%s", Containerd2Version, runtime.GOOS, runtime.GOARCH)
	dir, _, err := c.Once(context.Background(), name, func(_ context.Context, dir string) error {
		args := []string{"-n", "10", "go", "install", "-tags", "no_btrfs,no_devmapper,no_zfs,no_aufs"}
		for _, program := range []string{"containerd", "containerd-shim-runc-v2", "ctr"} {
			args = append(args, module+program+"@"+Containerd2Version)
		}
		build := exec.Command("nice", args...)
		build.Dir = dir // in no module
		build.Env = append(os.Environ(), "GOBIN="+dir, "CGO_ENABLED=0", "GOFLAGS=")
		_, err := output(build)
		return err
	})
	return dir, err
}
