package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ipam-guard/ipam-guard/integration/kubernetes/internal/parts"
)

// Plugin is who whereabouts is for the API: its service account, so that its
// own role is what it may do.
const Plugin = "system:serviceaccount:kube-system:whereabouts"

// start runs etcd and kube-apiserver, and fills c.API.
func (c *Cluster) start(ctx context.Context, p *parts.Parts) error {
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	client := fmt.Sprintf("http://127.0.0.1:%d", ports[0])
	peer := fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	if err := c.run("etcd", p.Etcd,
		"--data-dir", filepath.Join(c.dir, "etcd"), "--unsafe-no-fsync", "--name", "test",
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "test="+peer,
	); err != nil {
		return err
	}
	creds, err := newCredentials(c.dir)
	if err != nil {
		return err
	}
	if err := c.run("kube-apiserver", p.APIServer, apiserverFlags(client, ports[2], creds)...); err != nil {
		return err
	}
	c.API = API{
		URL: fmt.Sprintf("https://127.0.0.1:%d", ports[2]), Token: creds.adminToken, PluginToken: creds.pluginToken,
		Client: &http.Client{Transport: creds.transport(), Timeout: time.Minute}, Cert: creds.cert, Key: creds.key,
	}
	return c.ready(ctx, "/readyz")
}

func apiserverFlags(etcd string, port int, creds *credentials) []string {
	return []string{
		"--etcd-servers=" + etcd, "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port), "--endpoint-reconciler-type=none",
		"--tls-cert-file=" + creds.cert, "--tls-private-key-file=" + creds.key, "--token-auth-file=" + creds.tokens,
		"--authorization-mode=RBAC", "--service-account-issuer=https://test", "--service-account-key-file=" + creds.key,
		"--service-account-signing-key-file=" + creds.key, "--service-cluster-ip-range=10.0.0.0/24",
		"--disable-admission-plugins=ServiceAccount",
	}
}

func (c *Cluster) run(name, program string, args ...string) error {
	child, err := begin(filepath.Join(c.dir, name+".log"), program, args...)
	if err == nil {
		c.children = append(c.children, child)
	}
	return err
}

// ready waits until a path answers 200.
func (c *Cluster) ready(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	for {
		_, last := c.demand(http.MethodGet, path, "", nil, http.StatusOK)
		if last == nil {
			return nil
		}
		for _, child := range c.children {
			if err := child.ended(); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("kube-apiserver is not ready: %w: %w", context.Cause(ctx), last)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// install posts whereabouts' resource definitions, its account and its role,
// and waits until each resource can be listed.
func (c *Cluster) install(ctx context.Context, manifests string) error {
	files, err := filepath.Glob(filepath.Join(manifests, "whereabouts.cni.cncf.io_*.yaml"))
	if err != nil || len(files) == 0 {
		return errors.Join(fmt.Errorf("%s has no resource definitions", manifests), err)
	}
	for _, file := range append(files, filepath.Join(manifests, "daemonset-install.yaml")) {
		if err := c.postFile(file); err != nil {
			return err
		}
	}
	for _, file := range files {
		_, plural, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".yaml"), "_")
		if err := c.ready(ctx, group+"/"+plural); err != nil {
			return err
		}
	}
	return c.ready(ctx, "/api/v1/namespaces/kube-system")
}

// collection is where an object of a kind that is of use without controllers is
// posted.
func collection(kind string) string {
	switch kind {
	case "CustomResourceDefinition":
		return "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	case "ClusterRole":
		return "/apis/rbac.authorization.k8s.io/v1/clusterroles"
	case "ClusterRoleBinding":
		return "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
	}
	return ""
}

func (c *Cluster) postFile(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		path := collection(kindOf(doc))
		if path == "" {
			continue
		}
		if err := c.Create(path, "application/yaml", []byte(doc)); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

func kindOf(doc string) string {
	for line := range strings.Lines(doc) {
		if kind, ok := strings.CutPrefix(line, "kind: "); ok {
			return strings.TrimSpace(kind)
		}
	}
	return ""
}
