package delegate

// Hazard is what is known about main plugins and delegates that mind who stands
// in `ipam`: it is for the tool that puts the guard there. The plugin itself
// does not look at it.
type Hazard struct {
	Plugin   string // the main plugin's type; "": any
	Delegate string // the type of its ipam object; "": any, and none
	NAD      bool   // only in a NetworkAttachmentDefinition
	Position string // where the guard works: "plugin" or "shadow"; "": nowhere in this object
	Ask      bool   // and only if the administrator asks for it
	Why      string
}

// Hazards returns all that is known, the more particular first.
func Hazards() []Hazard {
	return []Hazard{
		{
			Plugin: "calico", Delegate: "calico-ipam", Position: "plugin",
			Why: "the calico plugin looks at ipam.type: annotations for IP pools and fixed addresses work only with calico-ipam",
		},
		{
			Plugin: "calico", Delegate: "host-local", Position: "plugin",
			Why: "the calico plugin looks at ipam.type: usePodCidr is replaced only for host-local",
		},
		{
			Plugin: "calico", Position: "plugin",
			Why: "the calico plugin looks at ipam.type, and writes into the ipam object",
		},
		{
			Plugin: "flannel", Position: "plugin",
			Why: "flannel makes the ipam object of the plugin that it calls, and writes ranges and routes into it",
		},
		{
			Plugin: "azure-vnet", Position: "plugin",
			Why: "azure-vnet decides by ipam.type how it allocates",
		},
		{
			Plugin: "antrea", Position: "plugin",
			Why: "antrea's agent refuses an ipam.type that it doesn't know, and calls IPAM by itself",
		},
		{
			Delegate: "whereabouts", NAD: true, Position: "shadow",
			Why: "whereabouts' reconcilers pass over a NetworkAttachmentDefinition whose ipam.type is not whereabouts",
		},
		{
			Delegate: "kube-ovn", NAD: true, Position: "shadow",
			Why: "kube-ovn's controller looks for kube-ovn in ipam.type of a NetworkAttachmentDefinition",
		},
		elsewhere("multus"), elsewhere("multus-shim"),
		alone("aws-cni"), alone("cilium-cni"), alone("weave-net"), alone("ovn-k8s-cni-overlay"), alone("kube-ovn"),
	}
}

// elsewhere: Multus calls the plugins of other configurations.
func elsewhere(plugin string) Hazard {
	return Hazard{Plugin: plugin, Why: plugin + " allocates nothing, it calls the plugins of other configurations: " +
		"guard the default network's own file and the NetworkAttachmentDefinitions"}
}

// alone: there is no IPAM plugin to stand in front of.
func alone(plugin string) Hazard {
	return Hazard{Plugin: plugin, Position: "plugin", Ask: true,
		Why: plugin + " allocates by itself, without an IPAM plugin: only the whole plugin can be guarded"}
}

// HazardOf returns what is known about a main plugin with a delegate ("" for a
// plugin without one); ok is false if there is nothing against the usual place.
func HazardOf(plugin, delegateType string, nad bool) (h Hazard, ok bool) {
	for _, h := range Hazards() {
		if (h.Plugin == "" || h.Plugin == plugin) && (h.Delegate == "" || h.Delegate == delegateType) && (nad || !h.NAD) {
			return h, true
		}
	}
	return Hazard{}, false
}
