package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const group = "/apis/whereabouts.cni.cncf.io/v1alpha1"

// An API is how a test talks to the cluster, as one who may do everything.
type API struct {
	URL         string
	Token       string
	PluginToken string // whereabouts' own
	Client      *http.Client
	Cert, Key   string // files: of whoever stands in for it on loopback
}

// Do sends a request and returns the answer whole.
func (a API) Do(method, path, contentType string, body []byte) (int, []byte, error) {
	req, err := http.NewRequest(method, a.URL+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+a.Token)
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	res, err := a.Client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	return res.StatusCode, answer, err
}

// demand is Do where only one of the statuses will do.
func (a API) demand(method, path, contentType string, body []byte, statuses ...int) ([]byte, error) {
	status, answer, err := a.Do(method, path, contentType, body)
	if err != nil {
		return nil, err // names method and URL
	}
	if !slices.Contains(statuses, status) {
		return nil, fmt.Errorf("%s %s: status %d: %s", method, path, status, answer)
	}
	return answer, nil
}

// Create posts a new object.
func (a API) Create(path, contentType string, body []byte) error {
	_, err := a.demand(http.MethodPost, path, contentType, body, http.StatusCreated)
	return err
}

// CreateNamespace makes a namespace: whereabouts keeps its pools and its lease
// in the one that its kubeconfig names.
func (a API) CreateNamespace(name string) error {
	return a.Create("/api/v1/namespaces", "application/json", fmt.Appendf(nil,
		`{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": %q}}`, name))
}

// An Allocation is an address in a pool, as whereabouts keeps it.
type Allocation struct {
	Pool, Offset string
	Container    string `json:"id"`
	Pod          string `json:"podref"`
	IfName       string `json:"ifname"`
}

// Allocations are all of a namespace.
func (a API) Allocations(namespace string) ([]Allocation, error) {
	var pools struct {
		Items []struct {
			Metadata struct{ Name string }
			Spec     struct{ Allocations map[string]Allocation }
		}
	}
	if err := a.list(group+"/namespaces/"+namespace+"/ippools", &pools); err != nil {
		return nil, err
	}
	var all []Allocation
	for _, pool := range pools.Items {
		for offset, one := range pool.Spec.Allocations {
			one.Pool, one.Offset = pool.Metadata.Name, offset
			all = append(all, one)
		}
	}
	return all, nil
}

// A Reservation is the second mark on an address, by which whereabouts keeps
// ranges that overlap apart.
type Reservation struct{ Name, Pod string }

// Reservations are all of a namespace.
func (a API) Reservations(namespace string) ([]Reservation, error) {
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Spec     struct{ PodRef string }
		}
	}
	if err := a.list(group+"/namespaces/"+namespace+"/overlappingrangeipreservations", &list); err != nil {
		return nil, err
	}
	var all []Reservation
	for _, one := range list.Items {
		all = append(all, Reservation{one.Metadata.Name, one.Spec.PodRef})
	}
	return all, nil
}

func (a API) list(path string, into any) error {
	answer, err := a.demand(http.MethodGet, path, "", nil, http.StatusOK)
	if err != nil {
		return err
	}
	return json.Unmarshal(answer, into)
}

func leasePath(namespace string) string {
	return "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases"
}

// HoldLease makes another identity the holder of whereabouts' lease, for longer
// than anyone waits.
func (a API) HoldLease(namespace string) error {
	if err := a.DropLease(namespace); err != nil {
		return err
	}
	now := time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")
	return a.Create(leasePath(namespace), "application/json", fmt.Appendf(nil,
		`{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "whereabouts"}, "spec": `+
			`{"holderIdentity": "another/pod", "leaseDurationSeconds": 3600, "acquireTime": %q, "renewTime": %[1]q}}`, now))
}

// DropLease removes the lease, whoever holds it.
func (a API) DropLease(namespace string) error {
	_, err := a.demand(http.MethodDelete, leasePath(namespace)+"/whereabouts", "", nil, http.StatusOK, http.StatusNotFound)
	return err
}

// WriteKubeconfig writes a file by which whereabouts finds the API at url, or
// who stands in for it there.
func (a API) WriteKubeconfig(path, url, namespace, token string) error {
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: %q, certificate-authority: %q, tls-server-name: 127.0.0.1}}]
users: [{name: test, user: {token: %q}}]
contexts: [{name: test, context: {cluster: test, user: test, namespace: %q}}]
current-context: test
`, url, a.Cert, token, namespace)
	part := path + ".part"
	if err := os.WriteFile(part, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(part, filepath.Clean(path))
}
