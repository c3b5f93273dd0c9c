package store

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

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
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{})
	config, err := loader.ClientConfig()
	if err != nil {
		return c, err
	}
	raw, err := loader.RawConfig()
	if err != nil {
		return c, err
	}
	namespace := "kube-system" // as whereabouts has it where none is named
	if named := raw.Contexts[raw.CurrentContext]; named != nil && named.Namespace != "" {
		namespace = named.Namespace
	}
	client, err := dynamic.NewForConfig(config)
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
	err = each(ctx, client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}), func(o unstructured.Unstructured) error {
		c.Pods[o.GetNamespace()+"/"+o.GetName()] = true
		return nil
	})
	return c, err
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
