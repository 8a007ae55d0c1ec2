package kubelet

import (
	"errors"
	"net/netip"
	"testing"
)

// No form of a loopback, link-local, multicast or unspecified address is allowed.
func TestAllowedAddresses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"192.0.2.1": true, "10.0.0.1": true, "2001:db8::1": true, "fd00::1": true, "100.64.0.1": true,
		"127.0.0.1": false, "127.1.2.3": false, "::1": false, "0.0.0.0": false, "::": false,
		"169.254.169.254": false, "fe80::1": false, "fe80::1%eth0": false, "224.0.0.1": false, "ff02::1": false, "255.255.255.255": false,
		"::ffff:127.0.0.1": false, "::ffff:169.254.169.254": false, "::ffff:10.0.0.1": true,
		"::127.0.0.1": false, "::10.0.0.1": false,
		"64:ff9b::127.0.0.1": false, "64:ff9b::169.254.169.254": false, "64:ff9b::10.0.0.1": true,
		"64:ff9b::127.0.0.1%lo": false, "::127.0.0.1%lo": false, "2002:7f00:1::%lo": false,
		"64:ff9b:1::127.0.0.1": false, "64:ff9b:1::10.0.0.1": true,
		// The prefix is of 48, 56 and 64 bits.
		"64:ff9b:1:7f00:0:100::": false, "64:ff9b:1:7f:0:1::": false, "64:ff9b:1:0:7f:0:100:0": false,
		"2002:7f00:1::": false, "2002:a9fe:a9fe::1": false, "2002:a00:1::1": true,
	} {
		if got := allowed(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
	}
}

// Kubelets are reached at loopback addresses if the flag says so, and proxies never reach them.
func TestLoopbackKubelets(t *testing.T) {
	t.Parallel()
	for _, loopback := range []bool{false, true} {
		c, err := New(Config{AllowLoopback: loopback})
		if err != nil {
			t.Fatal(err)
		}
		want := errLoopback
		if loopback {
			want = nil
		}
		for _, text := range []string{"127.0.0.1", "::1", "::ffff:127.0.0.1"} {
			ip := netip.MustParseAddr(text)
			for kind, want := range map[transportKind]error{toKubelet: want, toKubeletUnverified: want, proxyToKubelet: errNotAllowed, proxyToPod: errNotAllowed} {
				if err := c.transports.check(kind, ip); !errors.Is(err, want) {
					t.Errorf("%v, loopback %v, %s: got %v, want %v", kind, loopback, text, err, want)
				}
			}
		}
		for _, text := range []string{"169.254.169.254", "::127.0.0.1", "64:ff9b::127.0.0.1"} {
			if err := c.transports.check(toKubelet, netip.MustParseAddr(text)); !errors.Is(err, errNotAllowed) {
				t.Errorf("loopback %v, %s: got %v", loopback, text, err)
			}
		}
	}
}
