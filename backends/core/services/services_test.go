package services

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"portico/internal/testing/memstore"
	"portico/resource"
)

func TestConfiguredRanges(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cidrs []string
		ok    bool
	}{
		{[]string{"10.96.0.0/16"}, true}, {[]string{"10.96.0.5/24"}, true}, {[]string{"10.0.0.0/8"}, true}, {[]string{"10.96.0.0/29"}, true},
		{[]string{"10.96.0.0/30"}, false}, {[]string{"10.96.0.0"}, false}, {[]string{"x"}, false}, {nil, false},
		{[]string{"fd00::/108"}, true}, {[]string{"fd00::/63"}, false}, {[]string{"10.96.0.0/16", "fd00::/112"}, true},
		{[]string{"fd00::/64", "10.96.0.0/16"}, true}, {[]string{"10.96.0.0/16", "10.97.0.0/16"}, false},
		{[]string{"10.96.0.0/16", "fd00::/112", "fd01::/112"}, false},
	} {
		if _, err := parseRanges(c.cidrs); (err == nil) != c.ok {
			t.Errorf("%v: %v", c.cidrs, err)
		}
	}
}

// Every address of a range is tried once, those of the static band last.
func TestOrderOfAddresses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cidr        string
		first, last string
		size        int
		static      int
	}{
		{"10.0.0.0/29", "10.0.0.1", "10.0.0.6", 6, 0},
		{"10.0.0.0/24", "10.0.0.1", "10.0.0.254", 254, 16},
		{"10.0.0.0/22", "10.0.0.1", "10.0.3.254", 1022, 64},
		{"fd00::/120", "fd00::1", "fd00::ff", 255, 16},
		{"10.0.0.0/31", "", "", 0, 0},
	} {
		r, err := parseRange(c.cidr)
		if err != nil {
			t.Fatal(err)
		}
		var got []netip.Addr
		r.each(func(a netip.Addr) bool {
			got = append(got, a)
			return true
		})
		if len(got) != c.size {
			t.Fatalf("%s: %d addresses, want %d", c.cidr, len(got), c.size)
		}
		if c.size == 0 {
			continue
		}
		for i, a := range got {
			if inBand := !r.nth(uint64(c.static)).Less(a); inBand != (i >= c.size-c.static) || !r.has(a) {
				t.Fatalf("%s: address %d is %s, which is in the static band: %v", c.cidr, i, a, inBand)
			}
		}
		slices.SortFunc(got, netip.Addr.Compare)
		if got[0].String() != c.first || got[c.size-1].String() != c.last || len(slices.Compact(got)) != c.size {
			t.Errorf("%s: from %s to %s", c.cidr, got[0], got[c.size-1])
		}
	}
	huge, err := parseRange("fd00::/64")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	huge.each(func(a netip.Addr) bool {
		n++
		return huge.has(a) && n < 1000
	})
	if n != 1000 {
		t.Errorf("address %d is not in the range", n)
	}
}

func newTestPorts(t *testing.T, r string) *ports {
	t.Helper()
	parsed, err := utilnet.ParsePortRange(r)
	if err != nil {
		t.Fatal(err)
	}
	p := newPorts(*parsed, func(i *resource.Info) resource.Store { return memstore.New().Store(i) })
	p.used = func(int) {}
	return p
}

func nodePortService(kind corev1.ServiceType, ports ...corev1.ServicePort) *corev1.Service {
	return &corev1.Service{Spec: corev1.ServiceSpec{Type: kind, Ports: ports}}
}

func TestAssignedPorts(t *testing.T) {
	t.Parallel()
	p := newTestPorts(t, "30000-32767")
	m := newAllocations(&Services{ports: p})
	assign := func(svc, old *corev1.Service) ([]int, error) { return p.assign(t.Context(), svc, old, false, m) }
	port := func(number, nodePort int32, protocol corev1.Protocol) corev1.ServicePort {
		return corev1.ServicePort{Port: number, NodePort: nodePort, Protocol: protocol}
	}
	// Ports of one number share a node port; one that is named is used.
	dns := nodePortService("NodePort", port(53, 0, "TCP"), port(53, 0, "UDP"), port(80, 30080, "TCP"), port(80, 0, "SCTP"))
	claimed, err := assign(dns, nil)
	if got := dns.Spec.Ports; err != nil || got[0].NodePort == 0 || got[0].NodePort != got[1].NodePort || got[3].NodePort != 30080 || len(claimed) != 2 {
		t.Fatalf("got %v, claimed %v, %v", got, claimed, err)
	}
	if dynamic := dns.Spec.Ports[0].NodePort; dynamic < 30086 {
		t.Errorf("%d is in the static band", dynamic)
	}
	for nodePort, want := range map[int32]string{
		30080: `Service "" is invalid: spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated`,
		99:    `Service "" is invalid: spec.ports[0].nodePort: Invalid value: 99: provided port is not in the valid range. The range of valid ports is 30000-32767`,
	} {
		svc := nodePortService("NodePort", port(1, nodePort, "TCP"))
		if _, err := assign(svc, nil); !apierrors.IsInvalid(err) || err.Error() != want {
			t.Errorf("%d: %v", nodePort, err)
		}
	}
	// A balancer may go without, and takes what it names.
	lb := nodePortService("LoadBalancer", port(80, 0, "TCP"), port(81, 30081, "TCP"))
	lb.Spec.AllocateLoadBalancerNodePorts, lb.Spec.ExternalTrafficPolicy = new(false), "Local"
	claimed, err = assign(lb, nil)
	if err != nil || lb.Spec.Ports[0].NodePort != 0 || lb.Spec.HealthCheckNodePort == 0 || !slices.Equal(claimed, []int{30081, int(lb.Spec.HealthCheckNodePort)}) {
		t.Errorf("got %+v, claimed %v, %v", lb.Spec, claimed, err)
	}
	// A change claims only what is new.
	more := dns.DeepCopy()
	more.Spec.Ports = append(more.Spec.Ports, port(81, 0, "TCP"))
	if claimed, err = assign(more, dns); err != nil || len(claimed) != 1 || int(more.Spec.Ports[4].NodePort) != claimed[0] {
		t.Errorf("a change claims %v, %v", claimed, err)
	}
	if err := p.release(t.Context(), claimed); err != nil {
		t.Fatal(err)
	}
	if _, err := assign(nodePortService("NodePort", port(1, int32(claimed[0]), "TCP")), nil); err != nil {
		t.Errorf("a released port: %v", err)
	}
	// A refused service claims nothing, a dry run neither.
	if _, err := assign(nodePortService("NodePort", port(1, 30300, "TCP"), port(2, 30080, "TCP")), nil); err == nil {
		t.Error("a port in use is given")
	}
	dry := nodePortService("NodePort", port(1, 30300, "TCP"), port(2, 0, "TCP"))
	if _, err := p.assign(t.Context(), dry, nil, true, m); err != nil || dry.Spec.Ports[1].NodePort == 0 {
		t.Errorf("dry run: %+v %v", dry.Spec.Ports, err)
	}
	if _, err := assign(nodePortService("NodePort", port(1, 30300, "TCP")), nil); err != nil {
		t.Errorf("it stayed claimed: %v", err)
	}
}

// All ports of a range are given, each once, and then the range is full.
func TestFullPortRange(t *testing.T) {
	t.Parallel()
	p := newTestPorts(t, "100-139")
	m, given := newAllocations(&Services{ports: p}), map[int32]bool{}
	for i := range 40 {
		svc := nodePortService("NodePort", corev1.ServicePort{Port: 1})
		if _, err := p.assign(t.Context(), svc, nil, false, m); err != nil {
			t.Fatal(err)
		}
		got := svc.Spec.Ports[0].NodePort
		if static := got < 116; given[got] || static != (i >= 24) {
			t.Fatalf("allocation %d is %d", i, got)
		}
		given[got] = true
	}
	_, err := p.assign(t.Context(), nodePortService("NodePort", corev1.ServicePort{Port: 1}), nil, false, m)
	if !apierrors.IsInternalError(err) || err.Error() != "Internal error occurred: failed to allocate a nodePort: range is full" {
		t.Errorf("full: %v", err)
	}
}

// A port that no Service uses is freed by the fourth repair that finds it, and one that a
// Service uses is claimed.
func TestRebuiltPorts(t *testing.T) {
	t.Parallel()
	s := &Services{ports: newTestPorts(t, "30000-30099"), leaks: map[int]int{}}
	stored := newBitmap(s.ports.PortRange)
	stored.set(30001, 1)
	users := []*corev1.Service{
		nodePortService("NodePort", corev1.ServicePort{Port: 1, NodePort: 30002}), nodePortService("NodePort", corev1.ServicePort{Port: 1, NodePort: 30002}),
		nodePortService("NodePort", corev1.ServicePort{Port: 1, NodePort: 99}),
	}
	var kinds []string
	for i := range 4 {
		f := &portFindings{leaks: map[int]int{}}
		stored = s.rebuildPorts(stored, users, f)
		s.leaks = f.leaks
		for _, x := range f.found {
			kinds = append(kinds, fmt.Sprint(i, x.kind))
		}
	}
	if got := stored.all(); !slices.Equal(got, []int{30002}) {
		t.Errorf("claimed are %v", got)
	}
	want := []string{"0repair", "0duplicate", "0outOfRange", "1duplicate", "1outOfRange", "2duplicate", "2outOfRange", "3duplicate", "3outOfRange", "3leak"}
	if !slices.Equal(kinds, want) {
		t.Errorf("found %v, want %v", kinds, want)
	}
}
