package services

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
)

// minRange is the smallest size of a range of the configuration.
const minRange = 8

// ipRange is the range of a CIDR. Addresses are numbered from that of the network, 0.
type ipRange struct{ netip.Prefix }

// parseRange parses a CIDR. An IPv6 range has at least 64 bits of prefix.
func parseRange(cidr string) (ipRange, error) {
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil {
		return ipRange{}, err
	}
	if prefix.Addr().Is6() && prefix.Bits() < 64 {
		return ipRange{}, fmt.Errorf("shortest allowed prefix length for service CIDR is 64, got %d", prefix.Bits())
	}
	return ipRange{prefix.Masked()}, nil
}

// parseRanges parses the ranges of the configuration.
func parseRanges(cidrs []string) ([]ipRange, error) {
	var out []ipRange
	for i, cidr := range cidrs {
		r, err := parseRange(cidr)
		if err != nil {
			return nil, fmt.Errorf("service cluster IP range [%d] %q must be a CIDR such as 10.96.0.0/16: %w", i, cidr, err)
		}
		if r.total() < minRange {
			return nil, fmt.Errorf("service cluster IP range [%d] %q must have at least %d addresses", i, cidr, minRange)
		}
		out = append(out, r)
	}
	switch {
	case len(out) == 0:
		return nil, errors.New("service cluster IP ranges must contain at least one CIDR")
	case len(out) > 2:
		return nil, errors.New("service cluster IP ranges must not contain more than two CIDRs")
	case len(out) == 2 && out[0].family() == out[1].family():
		return nil, errors.New("service cluster IP ranges [0] and [1] must be of different IP families")
	}
	return out, nil
}

func (r ipRange) family() corev1.IPFamily { return familyOf(r.Addr()) }

func familyOf(a netip.Addr) corev1.IPFamily {
	if a.Is6() {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

// total is the number of addresses, at most MaxInt64.
func (r ipRange) total() uint64 {
	if host := r.Addr().BitLen() - r.Bits(); host < 63 {
		return 1 << host
	}
	return math.MaxInt64
}

// last is the number of the last address for Services; the first is 1. The broadcast address
// of IPv4 is none. 0: the range has no address.
func (r ipRange) last() uint64 {
	n := uint64(math.MaxUint64)
	if host := r.Addr().BitLen() - r.Bits(); host < 64 {
		n = 1<<host - 1
	}
	if r.Addr().Is4() && n > 0 {
		n--
	}
	return n
}

// static is the number of addresses at the beginning that are chosen last, so that Services
// that name an address find it free.
func (r ipRange) static() uint64 {
	const least, most, step = 16, 256, 16
	if r.total() <= least {
		return 0
	}
	return min(max(least, r.total()/step), most)
}

// nth returns the address of a number.
func (r ipRange) nth(n uint64) netip.Addr {
	b := r.Addr().As16()
	binary.BigEndian.PutUint64(b[8:], binary.BigEndian.Uint64(b[8:])+n)
	a := netip.AddrFrom16(b)
	if r.Addr().Is4() {
		return a.Unmap()
	}
	return a
}

// has reports whether the range has the address for Services: the address of the network and
// the broadcast address of IPv4 are none.
func (r ipRange) has(a netip.Addr) bool {
	return r.Contains(a) && a != r.Addr() && (a.Is6() || a != r.nth(r.total()-1))
}

// each calls try with the addresses in the order of their choice until it returns false: from a
// random one of the band that is not static, then of the static band.
func (r ipRange) each(try func(netip.Addr) bool) {
	static := r.static()
	if r.last() > static && !r.eachOf(static+1, r.last(), try) {
		return
	}
	if static > 0 {
		r.eachOf(1, min(static, r.last()), try)
	}
}

// eachOf is each for the numbers from first to last. It returns false if try did.
func (r ipRange) eachOf(first, last uint64, try func(netip.Addr) bool) bool {
	if last < first {
		return true
	}
	size := last - first + 1
	start := upTo(size)
	for i := range size {
		at := start + i
		if at >= size || at < start { // the sum may overflow
			at -= size
		}
		if !try(r.nth(first + at)) {
			return false
		}
	}
	return true
}
