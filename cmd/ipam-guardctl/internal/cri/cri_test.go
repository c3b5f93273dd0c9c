package cri_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/ipam-guard/ipam-guard/cmd/ipam-guardctl/internal/cri"
)

// server answers as a runtime with those sandboxes and containers.
type server struct {
	api.UnimplementedRuntimeServiceServer
	sandboxes  []*api.PodSandbox
	containers []*api.Container
	broken     error
	config     string // that it tells
}

func (s *server) Status(_ context.Context, r *api.StatusRequest) (*api.StatusResponse, error) {
	if !r.Verbose {
		return &api.StatusResponse{}, s.broken
	}
	return &api.StatusResponse{Info: map[string]string{"config": s.config}}, s.broken
}

func (s *server) ListPodSandbox(context.Context, *api.ListPodSandboxRequest) (*api.ListPodSandboxResponse, error) {
	return &api.ListPodSandboxResponse{Items: s.sandboxes}, nil
}

func (s *server) ListContainers(context.Context, *api.ListContainersRequest) (*api.ListContainersResponse, error) {
	return &api.ListContainersResponse{Containers: s.containers}, s.broken
}

func (s *server) listen(t *testing.T) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	api.RegisterRuntimeServiceServer(g, s)
	go func() { _ = g.Serve(l) }()
	t.Cleanup(g.Stop)
	return socket
}

func sandbox(id, name string, state api.PodSandboxState) *api.PodSandbox {
	return &api.PodSandbox{Id: id, State: state, Metadata: &api.PodSandboxMetadata{Name: name, Namespace: "default"}}
}

// All that a runtime knows, in whatever state, and what only a container names.
func TestSandboxes(t *testing.T) {
	t.Parallel()
	one := &server{
		sandboxes: []*api.PodSandbox{
			sandbox("a", "web", api.PodSandboxState_SANDBOX_READY), sandbox("b", "db", api.PodSandboxState_SANDBOX_NOTREADY),
		},
		containers: []*api.Container{{PodSandboxId: "a"}, {PodSandboxId: "c"}},
	}
	other := &server{sandboxes: []*api.PodSandbox{sandbox("d", "dns", api.PodSandboxState_SANDBOX_READY)}}
	have, err := cri.Sandboxes(t.Context(), []string{one.listen(t), "unix://" + other.listen(t)})
	want := []cri.Sandbox{
		{ID: "a", Name: "web", Namespace: "default", Ready: true}, {ID: "b", Name: "db", Namespace: "default"},
		{ID: "c"}, {ID: "d", Name: "dns", Namespace: "default", Ready: true},
	}
	if err != nil || !slices.Equal(have, want) {
		t.Errorf("%+v, %v", have, err)
	}
}

// Half of a list is an error, and so is a runtime that isn't there.
func TestHalf(t *testing.T) {
	t.Parallel()
	well := &server{sandboxes: []*api.PodSandbox{sandbox("a", "web", api.PodSandboxState_SANDBOX_READY)}}
	broken := &server{broken: errors.New("out of memory")}
	missing := filepath.Join(t.TempDir(), "missing")
	for _, second := range []string{broken.listen(t), missing} {
		list, err := cri.Sandboxes(t.Context(), []string{well.listen(t), second})
		if err == nil || len(list) > 0 || !strings.Contains(err.Error(), second) {
			t.Errorf("%s: %+v, %v", second, list, err)
		}
	}
	if have := cri.Present([]string{missing, t.TempDir()}); len(have) != 1 || have[0] == missing {
		t.Errorf("present: %v", have)
	}
}

// What containerd 1.6.20 and 2.4.2 answer, byte for byte, and what says nothing.
func TestFoldersOf(t *testing.T) {
	t.Parallel()
	for version, bin := range map[string][]string{"1.6.20": {"/srv/cni/bin"}, "2.4.2": {"/srv/cni/first", "/srv/cni/bin"}} {
		text, err := os.ReadFile("testdata/containerd-" + version + ".json")
		if err != nil {
			t.Fatal(err)
		}
		f, err := cri.FoldersOf(t.Context(), (&server{config: string(text)}).listen(t))
		if err != nil || f.ConfDir != "/srv/cni/net.d" || !slices.Equal(f.BinDirs, bin) {
			t.Errorf("%s: %+v, %v", version, f, err)
		}
	}
	for name, s := range map[string]*server{
		"CRI-O":   {config: `{"sandboxImage":"registry.k8s.io/pause:3.10"}`},
		"nothing": {},
		"half":    {config: `{"cni":{"confDir":"/etc/cni/net.d"}}`},
		"broken":  {config: `{"cni":{"confDir":"/etc/cni/net.d","binDir":"/opt/cni/bin"}}`, broken: errors.New("not now")},
	} {
		if f, err := cri.FoldersOf(t.Context(), s.listen(t)); err == nil || f.ConfDir != "" || f.BinDirs != nil {
			t.Errorf("%s: %+v, %v", name, f, err)
		}
	}
}
