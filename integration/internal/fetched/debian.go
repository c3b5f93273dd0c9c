package fetched

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// containerdPackages and podmanPackages are what these need beyond what every
// Debian has.
func containerdPackages() []string { return []string{"containerd", "runc", "libseccomp2"} }

func podmanPackages() []string {
	return []string{
		"podman", "conmon", "runc", "golang-github-containers-common", "golang-github-containers-image",
		"libassuan0", "libcap2", "libdevmapper1.02.1", "libglib2.0-0", "libgpg-error0", "libgpgme11", "libpcre2-8-0",
		"libseccomp2", "libsubid4",
	}
}

// Containerd1 is the root of an unpacked containerd and runc of Debian's.
func (c Cache) Containerd1() (string, error) { return c.debian("containerd", containerdPackages()) }

// Podman is the root of an unpacked podman of Debian's, with its libraries.
func (c Cache) Podman() (string, error) { return c.debian("podman", podmanPackages()) }

// debian unpacks packages below one root, of the versions that apt would
// install now.
func (c Cache) debian(name string, packages []string) (string, error) {
	versions, err := c.versions(packages)
	if err != nil {
		return "", err
	}
	key := fmt.Sprintf("debian-%s-%x", name, sha256.Sum256([]byte(versions)))
	dir, _, err := c.Once(context.Background(), key[:len("debian-")+len(name)+13], func(_ context.Context, dir string) error {
		return unpack(dir, packages)
	})
	return dir, err
}

var uris = regexp.MustCompile(`(?m)^'[^']+' (\S+)`)

// versions names the files that apt would download.
func (c Cache) versions(packages []string) (string, error) {
	ask := func() (string, error) {
		return output(exec.Command("apt-get", append([]string{"download", "--print-uris"}, packages...)...))
	}
	text, err := ask()
	if err != nil {
		fmt.Fprintln(c.Log, "apt-get update: apt knows no such packages yet")
		if _, err := output(exec.Command("apt-get", "update", "-q")); err != nil {
			return "", err
		}
		text, err = ask()
	}
	if err != nil {
		return "", err
	}
	var files []string
	for _, m := range uris.FindAllStringSubmatch(text, -1) {
		files = append(files, m[1])
	}
	return strings.Join(files, "\n"), nil
}

func unpack(dir string, packages []string) error {
	debs, err := os.MkdirTemp("", "debs-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(debs)
	// Without a folder that apt's own user may enter, it fetches as root and warns.
	download := exec.Command("apt-get", append([]string{"download", "-q", "-o", "APT::Sandbox::User=root"}, packages...)...)
	download.Dir = debs
	if _, err := output(download); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(debs, "*.deb"))
	if err != nil {
		return err
	}
	for _, deb := range files {
		if _, err := output(exec.Command("dpkg", "-x", deb, dir)); err != nil {
			return err
		}
	}
	return nil
}

// output runs a command to its end; what it said is in the error.
func output(cmd *exec.Cmd) (string, error) {
	var out, complaints strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, complaints.String())
	}
	return out.String(), nil
}
