package cri_test

import (
	"context"
	"errors"
	"net"
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
