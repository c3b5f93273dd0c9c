package jail

import "github.com/vishvananda/netlink"

// loopback brings up lo of the network namespace that this thread is in.
func loopback() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}
