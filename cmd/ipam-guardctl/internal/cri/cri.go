// Package cri asks container runtimes, by the sockets on which kubelet talks to
// them, what there is on a node.
//
// It promises that a list is complete or an error: half a list would make what
// lives look dead. A container that a runtime knows in whatever state is in it.
// What it can't promise: containerd lists a sandbox only after its CNI ADD, and
// what podman runs no socket tells. That is left to who decides by the list.
package cri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Sandbox is a pod's, as a runtime has it.
type Sandbox struct {
	ID        string
	Name      string // the pod's
	Namespace string // the pod's
	Ready     bool
}

// Sockets are where runtimes listen, by their own documentation.
func Sockets() []string {
	return []string{
		"/run/containerd/containerd.sock", "/run/k3s/containerd/containerd.sock", "/run/crio/crio.sock", "/run/cri-dockerd.sock",
	}
}

// Present are those of the sockets that are there.
func Present(sockets []string) []string {
	var found []string
	for _, path := range sockets {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			found = append(found, path)
		}
	}
	return found
}

// timeout is how long a runtime may take to answer one question.
const timeout = 10 * time.Second

// maxList is room for the list of far more sandboxes than a node can have.
const maxList = 64 << 20

// Sandboxes asks all of the runtimes.
func Sandboxes(ctx context.Context, sockets []string) ([]Sandbox, error) {
	var all []Sandbox
	for _, socket := range sockets {
		some, err := sandboxes(ctx, strings.TrimPrefix(socket, "unix://"))
		if err != nil {
			return nil, fmt.Errorf("the runtime behind %s can't be asked what runs: %w", socket, err)
		}
		all = append(all, some...)
	}
	return all, nil
}

func sandboxes(ctx context.Context, path string) ([]Sandbox, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, err
	}
	conn, err := dial(path)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	runtime := cri.NewRuntimeServiceClient(conn)
	list, err := runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return nil, err
	}
	containers, err := runtime.ListContainers(ctx, &cri.ListContainersRequest{})
	if err != nil {
		return nil, err
	}
	return known(list.Items, containers.Containers), nil
}

func dial(path string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxList)))
}

// known are the sandboxes, and those that only a container still names.
func known(items []*cri.PodSandbox, containers []*cri.Container) []Sandbox {
	var all []Sandbox
	seen := map[string]bool{}
	for _, s := range items {
		seen[s.Id] = true
		all = append(all, Sandbox{
			ID: s.Id, Name: s.GetMetadata().GetName(), Namespace: s.GetMetadata().GetNamespace(),
			Ready: s.State == cri.PodSandboxState_SANDBOX_READY,
		})
	}
	for _, c := range containers {
		if c.PodSandboxId != "" && !seen[c.PodSandboxId] {
			seen[c.PodSandboxId] = true
			all = append(all, Sandbox{ID: c.PodSandboxId, Ready: c.State == cri.ContainerState_CONTAINER_RUNNING})
		}
	}
	return all
}
