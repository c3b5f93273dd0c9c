//go:build integration || results

package containerd_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/ipam-guard/ipam-guard/integration/internal/jail"
	"github.com/ipam-guard/ipam-guard/internal/guardtest"
)

// Where containerd keeps to is the jail's own, and gone with it. Below a test's
// folder a socket's path is too long, too.
const (
	socket = "/run/containerd.sock"
	root   = "/var/lib/containerd"
	state  = "/run/containerd-state"
)

// daemon is a containerd in a jail, and kubelet's end of the line to it.
type daemon struct {
	*jail.Jail
	cri cri.RuntimeServiceClient

	bin, config, log string
	running          *jail.Command
	conn             *grpc.ClientConn
}

// newDaemon starts containerd with the working folder that the node's plugins
// need, and the pause image in it.
func newDaemon(t testing.TB, r release, n *guardtest.Node, binDirs ...string) *daemon {
	t.Helper()
	bin, runc := r.folders(t)
	d := &daemon{Jail: jail.New(t), bin: bin, config: filepath.Join(n.Dir, "containerd.toml"), log: filepath.Join(n.Dir, "containerd.log")}
	p := place{runc: runc, binDirs: binDirs, confDir: filepath.Join(n.Dir, "net.d"), networks: max(1, r.networks)}
	if err := os.WriteFile(d.config, []byte(r.config(p)), 0o644); err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("unix://"+d.Path(socket), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	d.conn, d.cri = conn, cri.NewRuntimeServiceClient(conn)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("containerd said at last:\n%s", tail(d.log, 4096))
		}
	})
	d.start(t, n.Dir)
	d.ctr(t, "-n", "k8s.io", "images", "import", image(t, n.Dir))
	return d
}

// start starts containerd, again too, and waits until it answers.
func (d *daemon) start(t testing.TB, dir string) {
	t.Helper()
	log, err := os.OpenFile(d.log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(d.bin, "containerd"), "--config", d.config)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	cmd.Env = append(os.Environ(), "PATH="+d.bin+":"+os.Getenv("PATH"))
	if d.running, err = d.Start(cmd); err != nil {
		t.Fatal(err)
	}
	guardtest.Eventually(t, "an answer from containerd", func() bool {
		d.conn.ResetConnectBackoff()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_, err := d.cri.Status(ctx, &cri.StatusRequest{})
		return err == nil
	})
}

// kill ends containerd as the kernel would; its pods live on.
func (d *daemon) kill() {
	_ = d.running.Process.Signal(unix.SIGKILL)
	_ = d.running.Wait()
}

func (d *daemon) ctr(t testing.TB, args ...string) {
	t.Helper()
	out, err := d.Run(exec.Command(filepath.Join(d.bin, "ctr"), append([]string{"--address", socket}, args...)...))
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func tail(path string, n int) string {
	text, _ := os.ReadFile(path)
	s := string(text[max(0, len(text)-n):])
	return s
}
