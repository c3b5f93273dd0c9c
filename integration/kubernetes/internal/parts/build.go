package parts

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	whereaboutsModule = "github.com/k8snetworkplumbingwg/whereabouts"
	kubernetesModule  = "k8s.io/kubernetes"
)

// whereabouts is built with the libraries of the Kubernetes version, so that
// both programs share what is compiled.
func (c Cache) whereabouts(ctx context.Context, dir string) error {
	mod := "module parts\n\ngo 1.26.0\n\nrequire (\n\t" + whereaboutsModule + " " + WhereaboutsVersion + "\n"
	for _, lib := range []string{"api", "apimachinery", "client-go"} {
		mod += "\tk8s.io/" + lib + " " + LibrariesVersion + "\n"
	}
	if err := build(ctx, dir, mod+")\n", "whereabouts", whereaboutsModule+"/cmd", ""); err != nil {
		return err
	}
	m, err := download(ctx, whereaboutsModule, WhereaboutsVersion)
	if err != nil {
		return err
	}
	return os.CopyFS(filepath.Join(dir, "crds"), os.DirFS(filepath.Join(m.Dir, "doc", "crds")))
}

// apiserver names the versions of the libraries, which its module's own go.mod
// leaves to a workspace.
func (c Cache) apiserver(ctx context.Context, dir string) error {
	m, err := download(ctx, kubernetesModule, KubernetesVersion)
	if err != nil {
		return err
	}
	theirs, err := os.ReadFile(m.GoMod)
	if err != nil {
		return err
	}
	mod := "module parts\n\ngo 1.26.0\n\ngodebug default=go1.26\n\nrequire " + kubernetesModule + " " + KubernetesVersion + "\n"
	for line := range strings.Lines(string(theirs)) {
		if f := strings.Fields(line); len(f) == 2 && f[1] == "v0.0.0" {
			mod += fmt.Sprintf("replace %s => %[1]s %s\n", f[0], LibrariesVersion)
		}
	}
	// Without a version it takes itself for a v0.0.0 and refuses to start.
	version := " -X k8s.io/component-base/version.gitVersion=" + KubernetesVersion +
		" -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=37"
	return build(ctx, dir, mod, "kube-apiserver", kubernetesModule+"/cmd/kube-apiserver", version)
}

// A module is as `go mod download -json` says.
type module struct{ Dir, GoMod, Error string }

func download(ctx context.Context, path, version string) (module, error) {
	var m module
	cmd := command(ctx, "go", "mod", "download", "-json", path+"@"+version)
	cmd.Dir = os.TempDir() // of no module
	out, err := cmd.Output()
	if jsonErr := json.Unmarshal(out, &m); jsonErr == nil && m.Error != "" {
		return m, fmt.Errorf("%s@%s: %s", path, version, m.Error)
	}
	if err != nil {
		return m, fmt.Errorf("%s@%s: %w", path, version, err)
	}
	return m, nil
}

// build compiles one program in a module of its own: go.mod as given, and
// whatever the go command adds to it.
func build(ctx context.Context, dir, mod, name, pkg, ldflags string) error {
	src := filepath.Join(dir, "module")
	if err := os.Mkdir(src, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(src, "go.mod"), []byte(mod), 0o644); err != nil {
		return err
	}
	return run(ctx, src, "nice", "-n", "10", "go", "build", "-mod=mod", "-buildvcs=false", "-trimpath",
		"-ldflags", "-s -w"+ldflags, "-o", filepath.Join(dir, name), pkg)
}

func run(ctx context.Context, dir string, args ...string) error {
	cmd := command(ctx, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return fmt.Errorf("not done in the time it was given: %w", context.Cause(ctx))
	}
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// command is stopped with all that it has started.
func command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}
