package main_test

import (
	"context"
	"net"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// telling is a containerd that tells its configuration.
type telling struct {
	api.UnimplementedRuntimeServiceServer
	config string
}

func (s telling) Status(context.Context, *api.StatusRequest) (*api.StatusResponse, error) {
	return &api.StatusResponse{Info: map[string]string{"config": s.config}}, nil
}

// A containerd that was started with a configuration somewhere else says itself
// which folders it uses. One that does not answer is known by its usual files.
func TestDoctorAsksTheRuntime(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "doctor") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	n := node{dir}
	ctl := newNode(t)
	n.write(t, "etc/containerd/config.toml", "conf_dir = \"/usual/net.d\"\nbin_dir = \"/usual/bin\"\n")
	n.write(t, "srv/cni/net.d/10-pods.conflist", podsConf)
	n.write(t, "proc/none", "")
	n.write(t, "run/containerd/none", "")
	socket := n.path("run/containerd/containerd.sock")
	for config, want := range map[string]string{
		read(t, "internal/cri/testdata/containerd-1.6.20.json"): "conf folder /srv/cni/net.d, plugins in /srv/cni/bin (as the runtime says)",
		read(t, "internal/cri/testdata/containerd-2.4.2.json"):  "conf folder /srv/cni/net.d, plugins in /srv/cni/first:/srv/cni/bin (as the runtime says)",
		`{}`: "conf folder /usual/net.d, plugins in /usual/bin (by /etc/containerd/config.toml)",
	} {
		l, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		g := grpc.NewServer()
		api.RegisterRuntimeServiceServer(g, telling{config: config})
		go func() { _ = g.Serve(l) }()
		out, status := ctl.tool(t, nil, "doctor", "--root", dir)
		g.Stop()
		if status != 3 || !strings.Contains(out, "(answers): "+want+"\n") {
			t.Errorf("exit status %d, want %q\n%s", status, want, out)
		}
		is := "/srv/cni/net.d/10-pods.conflist is not guarded"
		if strings.Contains(out, is) != strings.Contains(want, "/srv/cni/net.d") {
			t.Errorf("%q?\n%s", is, out)
		}
	}
}
