package main

import (
	"net"
	"net/netip"
	"os"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	_ "github.com/containernetworking/cni/pkg/types/create" // registers the older versions
	"github.com/containernetworking/cni/pkg/version"
)

// printResult prints what was allocated, in the version of the netconf.
func (r *run) printResult([]string) error {
	r.printed = true
	all := &types100.Result{CNIVersion: types100.ImplementedSpecVersion}
	for _, t := range r.taken {
		addr := netip.MustParseAddr(t)
		f := v4
		if addr.Is6() {
			f = v6
		}
		all.IPs = append(all.IPs, &types100.IPConfig{
			Address: net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(f.bits, addr.BitLen())},
			Gateway: f.first.Prev().AsSlice(),
		})
	}
	result, err := all.GetAsVersion(r.conf.CNIVersion)
	if err != nil {
		return exit{1, types.NewError(types.ErrIncompatibleCNIVersion, "incompatible CNI versions", err.Error())}
	}
	return written(0, result.PrintTo(os.Stdout))
}

func (r *run) printVersion([]string) error {
	r.printed = true
	return written(0, version.All.Encode(os.Stdout))
}
