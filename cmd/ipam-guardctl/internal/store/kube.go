package store

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
)

// Cluster is what the Kubernetes API has of whereabouts'.
type Cluster struct {
	Held []Held
	Pods map[string]bool // namespace/name of all pods, wherever they run
}

// patience is how long the API may take for all of it.
const patience = 30 * time.Second

// Whereabouts reads the pools and reservations of the namespace that a kubeconfig
// names, and which pods the cluster has: read after the pools, since a pod is
// there before its address.
func Whereabouts(ctx context.Context, kubeconfig string) (Cluster, error) {
	var c Cluster
	client, namespace, err := connect(kubeconfig)
	if err != nil {
		return c, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = each(ctx, client.Resource(resource("ippools")).Namespace(namespace), func(o unstructured.Unstructured) error {
		some, err := pool(o)
		c.Held = append(c.Held, some...)
		return err
	})
	if err != nil {
		return c, err
	}
	err = each(ctx, client.Resource(resource("overlappingrangeipreservations")).Namespace(namespace), func(o unstructured.Unstructured) error {
		if h, ok := second(o); ok {
			c.Held = append(c.Held, h)
		}
		return nil
	})
	if err != nil {
		return c, err
	}
	c.Pods = map[string]bool{}
	err = each(ctx, client.Resource(core("pods")), func(o unstructured.Unstructured) error {
		c.Pods[o.GetNamespace()+"/"+o.GetName()] = true
		return nil
	})
	return c, err
}

// connect returns a client, and the namespace that a kubeconfig names.
func connect(kubeconfig string) (client dynamic.Interface, namespace string, err error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{})
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, "", err
	}
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, "", err
	}
	namespace = "kube-system" // as whereabouts has it where none is named
	if named := raw.Contexts[raw.CurrentContext]; named != nil && named.Namespace != "" {
		namespace = named.Namespace
	}
	client, err = dynamic.NewForConfig(config)
	return client, namespace, err
}

// PodGone says why a pod, as namespace/name, can't be said to run nowhere: the
// cluster has it (again), or a node is not ready. A pod that was force-deleted
// while its node was cut off runs on there.
func PodGone(ctx context.Context, kubeconfig, pod string) error {
	client, _, err := connect(kubeconfig)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	namespace, name, _ := strings.Cut(pod, "/")
	_, err = client.Resource(core("pods")).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		return fmt.Errorf("the cluster has the pod %s now", pod)
	}
	if !apierrors.IsNotFound(err) {
		return err
	}
	return each(ctx, client.Resource(core("nodes")), func(o unstructured.Unstructured) error {
		if !ready(o) {
			return fmt.Errorf("node %s is not ready: what runs there can't be known", o.GetName())
		}
		return nil
	})
}

func ready(node unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(node.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "Ready" {
			return c["status"] == "True"
		}
	}
	return false
}

func core(name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: name}
}

func resource(name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "whereabouts.cni.cncf.io", Version: "v1alpha1", Resource: name}
}

// each goes through a list, 500 at a time.
func each(ctx context.Context, r dynamic.ResourceInterface, f func(unstructured.Unstructured) error) error {
	for next := ""; ; {
		list, err := r.List(ctx, metav1.ListOptions{Limit: 500, Continue: next})
		if err != nil {
			return err
		}
		for _, o := range list.Items {
			if err := f(o); err != nil {
				return err
			}
		}
		if next = list.GetContinue(); next == "" {
			return nil
		}
	}
}

// pool are the addresses of an IPPool: it has them by their distance from the
// first address of its range.
func pool(o unstructured.Unstructured) ([]Held, error) {
	text, _, err := unstructured.NestedString(o.Object, "spec", "range")
	if err != nil {
		return nil, err
	}
	base, err := netip.ParsePrefix(text)
	if err != nil {
		return nil, fmt.Errorf("IPPool %s: %w", o.GetName(), err)
	}
	allocations, _, err := unstructured.NestedMap(o.Object, "spec", "allocations")
	if err != nil {
		return nil, fmt.Errorf("IPPool %s: %w", o.GetName(), err)
	}
	var all []Held
	for offset, value := range allocations {
		n, err := strconv.ParseUint(offset, 10, 64)
		if err != nil {
			continue // whereabouts passes it over, too
		}
		fields, _ := value.(map[string]any)
		field := func(name string) string { text, _ := fields[name].(string); return text }
		all = append(all, Held{
			Delegate: "whereabouts", Address: add(base.Addr(), n), Container: field("id"), IfName: field("ifname"), Pod: field("podref"),
			Place: fmt.Sprintf("%s ippools.whereabouts.cni.cncf.io/%s allocations.%s", o.GetNamespace(), o.GetName(), offset),
		})
	}
	return all, nil
}

// add is the address that lies n behind another.
func add(a netip.Addr, n uint64) netip.Addr {
	raw := a.AsSlice()
	for i := len(raw) - 1; i >= 0 && n > 0; i-- {
		n += uint64(raw[i])
		raw[i] = byte(n)
		n >>= 8
	}
	sum, _ := netip.AddrFromSlice(raw)
	return sum
}

// second is an OverlappingRangeIPReservation: its name is the address, behind the
// network's name where whereabouts keeps networks apart.
func second(o unstructured.Unstructured) (Held, bool) {
	name := o.GetName()
	h := Held{
		Delegate: "whereabouts", Second: true, Since: o.GetCreationTimestamp().Time,
		Place: o.GetNamespace() + " " + name,
	}
	h.Pod, _, _ = unstructured.NestedString(o.Object, "spec", "podref")
	h.IfName, _, _ = unstructured.NestedString(o.Object, "spec", "ifname")
	h.Container, _, _ = unstructured.NestedString(o.Object, "spec", "containerid")
	for _, text := range []string{name, strings.ReplaceAll(name, "-", ":"), name[strings.LastIndex(name, "-")+1:]} {
		if a, err := netip.ParseAddr(text); err == nil {
			h.Address = a
			return h, true
		}
	}
	return h, false // an IPv6 address behind a network's name: where it begins isn't said
}
