package delegate_test

import (
	"testing"

	"github.com/ipam-guard/ipam-guard/pkg/delegate"
)

// Case 57: who looks at ipam.type, and the position that works then.
func TestHazards(t *testing.T) {
	for _, tt := range []struct {
		plugin, delegate string
		nad              bool
		position         string // "-": nothing is known
		ask              bool
	}{
		{"calico", "calico-ipam", false, "plugin", false},
		{"calico", "host-local", false, "plugin", false},
		{"calico", "other", true, "plugin", false},
		{"flannel", "", false, "plugin", false},
		{"azure-vnet", "azure-cns", false, "plugin", false},
		{"antrea", "host-local", false, "plugin", false},
		{"macvlan", "whereabouts", true, "shadow", false},
		{"macvlan", "whereabouts", false, "-", false},
		{"macvlan", "kube-ovn", true, "shadow", false},
		{"cilium-cni", "", false, "plugin", true},
		{"multus", "", false, "", false},
		{"bridge", "host-local", false, "-", false},
		{"portmap", "", false, "-", false},
	} {
		h, ok := delegate.HazardOf(tt.plugin, tt.delegate, tt.nad)
		position := h.Position
		if !ok {
			position = "-"
		}
		if position != tt.position || h.Ask != tt.ask || ok && h.Why == "" {
			t.Errorf("%s with %s (%v): %+v", tt.plugin, tt.delegate, tt.nad, h)
		}
	}
}
