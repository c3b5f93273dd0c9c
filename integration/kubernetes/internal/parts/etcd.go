package parts

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// etcd is the one in PATH, else Debian's, unpacked and not installed: a package
// that is installed may start what is in it.
func (c Cache) etcd(ctx context.Context, dir string) error {
	into := filepath.Join(dir, "etcd")
	if have, err := exec.LookPath("etcd"); err == nil {
		return os.Symlink(have, into)
	}
	deb, err := debian(ctx, dir, "etcd-server")
	if err != nil {
		return fmt.Errorf("no etcd in PATH, and it can't be had from Debian: %w", err)
	}
	if err := run(ctx, dir, "dpkg-deb", "-x", deb, "root"); err != nil {
		return err
	}
	return os.Symlink(filepath.Join("root", "usr", "bin", "etcd"), into)
}

func debian(ctx context.Context, dir, name string) (string, error) {
	if err := run(ctx, dir, "apt-get", "download", name); err != nil {
		// It has not looked at the lists yet, or they are too old.
		if err := run(ctx, dir, "apt-get", "update", "-q"); err != nil {
			return "", err
		}
		if err := run(ctx, dir, "apt-get", "download", name); err != nil {
			return "", err
		}
	}
	debs, _ := filepath.Glob(filepath.Join(dir, name+"_*.deb"))
	if len(debs) != 1 {
		return "", fmt.Errorf("apt-get download %s left %d packages", name, len(debs))
	}
	return debs[0], nil
}
