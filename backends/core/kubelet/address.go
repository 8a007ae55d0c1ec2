package kubelet

import (
	"errors"
	"net/netip"
	"slices"
)

// errNotAllowed is the error for an address that is never connected to.
var errNotAllowed = errors.New("address not allowed")

// errLoopback is the error for a kubelet at a loopback address.
var errLoopback = errors.New("address not allowed: the kubelet is at a loopback address; " +
	"if it runs on the machine of the core server, start the core server or portico up with --kubelet-allow-loopback")

var (
	ipv4Compatible = netip.MustParsePrefix("::/96")          // RFC 4291, 2.5.5.1
	nat64          = netip.MustParsePrefix("64:ff9b::/96")   // RFC 6052, 2.1
	localNAT64     = netip.MustParsePrefix("64:ff9b:1::/48") // RFC 8215
	sixToFour      = netip.MustParsePrefix("2002::/16")      // RFC 3056, 2
)

// allowed reports whether a kubelet or a pod may have an address: a unicast address that is
// neither loopback nor link-local nor unspecified, and no IPv6 form of an IPv4 address that is.
func allowed(ip netip.Addr) bool {
	ip = ip.WithZone("").Unmap() // prefixes contain no address with a zone
	switch {
	case !ip.IsGlobalUnicast() || ipv4Compatible.Contains(ip):
		return false
	case nat64.Contains(ip):
		return allowed(embedded(ip, 12, 13, 14, 15))
	case sixToFour.Contains(ip):
		return allowed(embedded(ip, 2, 3, 4, 5))
	case localNAT64.Contains(ip):
		return allowedByNAT64(ip)
	}
	return true
}

// allowedByNAT64 is allowed for a prefix of which the network decides the length, and so where
// the IPv4 address is (RFC 6052, 2.2): no address may be embedded that is not allowed. What
// follows the IPv4 address is zero.
func allowedByNAT64(ip netip.Addr) bool {
	b := ip.As16()
	for _, at := range [][4]int{{12, 13, 14, 15}, {9, 10, 11, 12}, {7, 9, 10, 11}, {6, 7, 9, 10}} {
		ends := !slices.ContainsFunc(b[at[3]+1:], func(c byte) bool { return c != 0 })
		if ends && !allowed(embedded(ip, at[0], at[1], at[2], at[3])) {
			return false
		}
	}
	return true
}

// embedded returns the IPv4 address of four bytes of an IPv6 address.
func embedded(ip netip.Addr, i, j, k, l int) netip.Addr {
	b := ip.As16()
	return netip.AddrFrom4([4]byte{b[i], b[j], b[k], b[l]})
}
