package core

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/internal/testing/await"
	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/loop"
	"portico/resource/rest"
)

const servicesPath = "/api/v1/namespaces/default/services"

type values = map[string]any

// body returns a Service with one port, and more values of spec.
func body(name string, spec values) values {
	out := values{"ports": []any{values{"port": 80}}}
	for k, v := range spec {
		out[k] = v
	}
	return values{"metadata": values{"name": name}, "spec": out}
}

func (c *Core) createService(t *testing.T, name string, spec values) *corev1.Service {
	t.Helper()
	svc := &corev1.Service{}
	c.must(t, http.MethodPost, servicesPath, body(name, spec), svc)
	return svc
}

// claimOf returns the Service that has the claim on an address; "": none.
func (c *Core) claimOf(t *testing.T, ip string) string {
	t.Helper()
	claim := get[networkingv1.IPAddress](t, c, "/apis/networking.k8s.io/v1/ipaddresses/"+ip)
	if claim == nil {
		return ""
	}
	if claim.Labels["ipaddress.kubernetes.io/managed-by"] != "ipallocator.k8s.io" || claim.Labels["ipaddress.kubernetes.io/ip-family"] == "" {
		t.Errorf("claim has labels %v", claim.Labels)
	}
	return claim.Spec.ParentRef.Namespace + "/" + claim.Spec.ParentRef.Name
}

// Several servers give every address once, until the range is full.
func TestNoAddressTwice(t *testing.T) {
	t.Parallel()
	kept := inMemory{memstore.New()}
	cfg := Config{ServiceClusterIPRanges: []string{"10.0.0.0/27"}}
	first := runningOver(t, kept, cfg)
	servers := []*Core{first, runningOver(t, kept, cfg)}
	await.Until(t, "default/kubernetes is there", func() bool { return get[corev1.Service](t, first, servicesPath+"/kubernetes") != nil })
	var mu sync.Mutex
	given := map[string]string{}
	var wg sync.WaitGroup
	for i := range 29 { // of 32, less the network, default/kubernetes, broadcast
		wg.Go(func() {
			svc := &corev1.Service{}
			if err := servers[i%2].do(t, http.MethodPost, servicesPath, body(fmt.Sprint("s", i), nil), svc); err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if other := given[svc.Spec.ClusterIP]; other != "" {
				t.Errorf("%s is given to %s and %s", svc.Spec.ClusterIP, other, svc.Name)
			}
			given[svc.Spec.ClusterIP] = svc.Name
		})
	}
	wg.Wait()
	err := first.do(t, http.MethodPost, servicesPath, body("more", nil), nil)
	if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), `failed to allocate a serviceIP for Service "more": range is full`) {
		t.Errorf("full: %v", err)
	}
	// Another ServiceCIDR gives more.
	first.must(t, http.MethodPost, "/apis/networking.k8s.io/v1/servicecidrs", values{"metadata": values{"name": "more"}, "spec": values{"cidrs": []any{"10.1.0.0/28"}}}, nil)
	await.Until(t, "another range gives addresses", func() bool {
		svc := &corev1.Service{}
		err := first.do(t, http.MethodPost, servicesPath, body("more", nil), svc)
		return err == nil && strings.HasPrefix(svc.Spec.ClusterIP, "10.1.0.")
	})
}

func TestRequestedAddress(t *testing.T) {
	t.Parallel()
	c := running(t, Config{})
	await.Until(t, "default/kubernetes is there", func() bool { return get[corev1.Service](t, c, servicesPath+"/kubernetes") != nil })
	c.createService(t, "a", values{"clusterIP": "10.96.0.50"})
	if got := c.claimOf(t, "10.96.0.50"); got != "default/a" {
		t.Errorf("its claim is of %q", got)
	}
	for ip, want := range map[string]string{
		"10.97.0.1":     "failed to allocate IP 10.97.0.1: the provided network does not match the current range",
		"10.96.0.0":     "failed to allocate IP 10.96.0.0: the provided network does not match the current range",
		"10.96.255.255": "failed to allocate IP 10.96.255.255: the provided network does not match the current range",
		"10.96.0.50":    "failed to allocate IP 10.96.0.50: provided IP is already allocated",
		"10.96.0.1":     "failed to allocate IP 10.96.0.1: provided IP is already allocated",
	} {
		err := c.do(t, http.MethodPost, servicesPath, body("b", values{"clusterIP": ip}), nil)
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", ip, err)
		}
	}
	c.must(t, http.MethodPost, servicesPath+"?dryRun=All", body("b", values{"clusterIP": "10.96.0.51"}), nil)
	if got := c.claimOf(t, "10.96.0.51"); got != "" {
		t.Errorf("a dry run claimed for %q", got)
	}
}

// Claims are released with the deletion, and with an update that gives them up, before these
// respond; a refused write leaves none. A repair that listed the Services before may hold a
// claim again for a moment.
func TestClaimsAreReleased(t *testing.T) {
	t.Parallel()
	c := running(t, Config{ServiceClusterIPRanges: []string{"10.96.0.0/24", "fd00::/120"}})
	port := func(n int) values { return values{"ports": []any{values{"port": 80, "nodePort": n}}} }
	svc := c.createService(t, "a", values{"type": "NodePort", "ports": []any{values{"port": 80, "nodePort": 30001}}, "clusterIP": "10.96.0.7"})
	if !slices.Equal(svc.Spec.ClusterIPs, []string{"10.96.0.7"}) {
		t.Fatalf("addresses %v", svc.Spec.ClusterIPs)
	}
	path := servicesPath + "/a"
	patch := func(spec values) *corev1.Service {
		t.Helper()
		out := &corev1.Service{}
		cur := get[map[string]any](t, c, path)
		for k, v := range spec {
			(*cur)["spec"].(map[string]any)[k] = v
		}
		c.must(t, http.MethodPut, path, *cur, out)
		return out
	}
	dual := patch(values{"ipFamilyPolicy": "RequireDualStack"})
	if len(dual.Spec.ClusterIPs) != 2 || c.claimOf(t, dual.Spec.ClusterIPs[1]) != "default/a" {
		t.Fatalf("dual stack has %v", dual.Spec.ClusterIPs)
	}
	patch(values{"ipFamilyPolicy": "SingleStack"})
	released := func(ip string) {
		t.Helper()
		await.Until(t, ip+" is released", func() bool { return c.claimOf(t, ip) == "" })
	}
	released(dual.Spec.ClusterIPs[1])
	patch(port(30002))
	other := c.createService(t, "other", values{"type": "NodePort", "ports": []any{values{"port": 80, "nodePort": 30001}}})
	err := c.do(t, http.MethodPost, servicesPath, body("late", values{"type": "NodePort", "ports": []any{values{"port": 80, "nodePort": 30002}}, "clusterIP": "10.96.0.9"}), nil)
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.ports[0].nodePort: Invalid value: 30002: provided port is already allocated") || c.claimOf(t, "10.96.0.9") != "" {
		t.Errorf("a port in use: %v, the address is claimed by %q", err, c.claimOf(t, "10.96.0.9"))
	}
	if err := c.do(t, http.MethodPost, servicesPath, body("a", values{"clusterIP": "10.96.0.9"}), nil); !apierrors.IsAlreadyExists(err) || c.claimOf(t, "10.96.0.9") != "" {
		t.Errorf("again: %v", err)
	}
	patch(values{"type": "ExternalName", "externalName": "a.example"})
	released("10.96.0.7")
	c.createService(t, "third", values{"type": "NodePort", "ports": []any{values{"port": 80, "nodePort": 30002}}, "clusterIP": "10.96.0.7"})
	c.must(t, http.MethodDelete, servicesPath+"/other", nil, nil)
	released(other.Spec.ClusterIP)
	c.createService(t, "other", values{"type": "NodePort", "ports": []any{values{"port": 80, "nodePort": 30001}}, "clusterIP": other.Spec.ClusterIP})
}

// A start on Services of another server claims for them before it allocates, replaces the claims
// of an earlier version, and frees those that nothing uses.
func TestStartOnForeignServices(t *testing.T) {
	t.Parallel()
	kept := inMemory{memstore.New()}
	writer := newCoreOver(t, kept, Config{})
	store := func(name, ip string, nodePort int32) {
		svc := &corev1.Service{}
		svc.Namespace, svc.Name = "default", name
		svc.Spec = corev1.ServiceSpec{Type: "NodePort", ClusterIP: ip, ClusterIPs: []string{ip}, IPFamilies: []corev1.IPFamily{"IPv4"}, Ports: []corev1.ServicePort{{Port: 80, NodePort: nodePort, Protocol: "TCP"}}}
		if name == "old1" { // as an older Kubernetes stored it
			svc.Spec.ClusterIPs, svc.Spec.IPFamilies = nil, nil
		}
		if _, err := rest.CreateObject(t.Context(), writer.find("", "services"), svc); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 5 { // all but one of the range
		store(fmt.Sprint("old", i), fmt.Sprint("10.96.0.", i+2), int32(30000+i))
	}
	store("twin", "10.96.0.2", 30000)
	old := &resource.Info{Group: "internal.portico.dev", Versions: []string{"v1"}, Resource: "clusteripclaims", Kind: "ClusterIPClaim", Path: "portico/clusterips"}
	o, err := resource.Parse([]byte(`{"apiVersion":"internal.portico.dev/v1","kind":"ClusterIPClaim","metadata":{"name":"10.96.0.2"},"owner":"default/old0"}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kept.Store(old).Create(t.Context(), resource.Key{Name: "10.96.0.2"}, o, 0); err != nil {
		t.Fatal(err)
	}
	leak := &networkingv1.IPAddress{}
	leak.Name, leak.Labels = "10.96.0.9", map[string]string{"ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"}
	leak.Spec.ParentRef = &networkingv1.ParentReference{Resource: "services", Namespace: "default", Name: "gone"}
	if _, err := rest.CreateObject(t.Context(), writer.find("networking.k8s.io", "ipaddresses"), leak); err != nil {
		t.Fatal(err)
	}
	if _, err := rest.Modify(t.Context(), writer.find("networking.k8s.io", "ipaddresses"), resource.Key{Name: leak.Name}, func(ip *networkingv1.IPAddress) error {
		ip.CreationTimestamp.Time = time.Now().Add(-time.Hour)
		return nil
	}); err != nil {
		t.Fatal(err)
	}

	c := runningOver(t, kept, Config{ServiceClusterIPRanges: []string{"10.96.0.0/29"}, ServiceNodePortRange: "30000-30005"})
	svc := &corev1.Service{}
	if err := c.do(t, http.MethodPost, servicesPath, body("new", values{"type": "NodePort"}), svc); err == nil {
		t.Errorf("a full range gives %s", svc.Spec.ClusterIP)
	}
	c.must(t, http.MethodPost, servicesPath, body("headless", values{"clusterIP": "None"}), nil)
	for i := range 5 {
		if got, want := c.claimOf(t, fmt.Sprint("10.96.0.", i+2)), fmt.Sprint("default/old", i); got != want {
			t.Errorf("the claim is of %q, not %q", got, want)
		}
	}
	if list, err := kept.Store(old).List(t.Context(), resource.ListOptions{}); err != nil || len(list.Items) != 0 {
		t.Errorf("claims of the earlier version: %v, %v", list, err)
	}
	if got := c.claimOf(t, "10.96.0.9"); got != "" {
		t.Errorf("the leak is claimed by %q", got)
	}
	reasons := map[string]bool{}
	for _, e := range get[corev1.EventList](t, c, "/api/v1/namespaces/default/events").Items {
		reasons[e.InvolvedObject.Name+" "+e.Reason] = true
	}
	for _, want := range []string{"old1 ClusterIPNotAllocated", "twin ClusterIPAlreadyAllocated", "old3 PortNotAllocated", "twin PortAlreadyAllocated", "10.96.0.9 IPAddressNotAllocated"} {
		if !reasons[want] {
			t.Errorf("no event %s in %v", want, reasons)
		}
	}
	c.must(t, http.MethodDelete, servicesPath+"/old4", nil, nil)
	if svc := c.createService(t, "new", values{"type": "NodePort"}); svc.Spec.ClusterIP != "10.96.0.6" {
		t.Errorf("got %s and port %d", svc.Spec.ClusterIP, svc.Spec.Ports[0].NodePort)
	}
}

// A repair starts when the claim of a Service is deleted, and when another server writes a Service
// without a claim. No other write starts one.
func TestRepairIsWoken(t *testing.T) {
	t.Parallel()
	kept := inMemory{memstore.New()}
	writer, c := newCoreOver(t, kept, Config{}), newCoreOver(t, kept, Config{})
	start(t, c.cache.Run)
	c.must(t, http.MethodPost, "/api/v1/namespaces", values{"metadata": values{"name": "default"}}, nil)
	wake, repairs := new(loop.Signal), atomic.Int64{}
	start(t, func(ctx context.Context) error { return c.services.Watch(ctx, wake) })
	start(t, func(ctx context.Context) error { // as Core.repairServices, which repairs every minute, too
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-wake.C():
				repairs.Add(1)
				if err := c.services.Repair(ctx); err != nil {
					wake.Set()
				}
			}
		}
	})
	claimed := func(ip, by string) {
		t.Helper()
		await.Until(t, fmt.Sprintf("%s is claimed by %q", ip, by), func() bool { return c.claimOf(t, ip) == by })
	}
	store := func(name string, ips ...string) {
		t.Helper()
		svc := &corev1.Service{Spec: corev1.ServiceSpec{Type: "ClusterIP", ClusterIP: ips[0], ClusterIPs: ips}}
		svc.Namespace, svc.Name = "default", name
		if _, err := rest.CreateObject(t.Context(), writer.find("", "services"), svc); err != nil {
			t.Fatal(err)
		}
	}
	store("first", "10.96.0.20")
	claimed("10.96.0.20", "default/first")
	store("later", "10.96.0.21")
	claimed("10.96.0.21", "default/later")
	c.must(t, http.MethodDelete, "/apis/networking.k8s.io/v1/ipaddresses/10.96.0.20", nil, nil)
	claimed("10.96.0.20", "default/first")

	before := repairs.Load()
	for i := range 20 {
		c.createService(t, fmt.Sprint("quiet", i), nil)
	}
	store("headless", "None")
	for i := range 5 { // not repaired
		store(fmt.Sprint("foreign", i), "192.0.2.1")
	}
	store("last", "10.96.0.22")
	claimed("10.96.0.22", "default/last")
	if n := repairs.Load() - before; n > 2 { // one for the last Service, and one if a watch began late
		t.Errorf("%d repairs, which nothing needed", n)
	}
}

// The default ServiceCIDR has the ranges of the configuration; a second one is added.
func TestDefaultServiceCIDR(t *testing.T) {
	t.Parallel()
	kept := inMemory{memstore.New()}
	for _, ranges := range [][]string{{"10.96.0.0/16"}, {"10.96.0.0/16", "fd00::/112"}, {"fd01::/112"}} {
		c := newCoreOver(t, kept, Config{ServiceClusterIPRanges: ranges})
		start(t, c.cache.Run)
		await.Until(t, "it is repaired", func() bool { return c.services.Repair(t.Context()) == nil })
		got := get[networkingv1.ServiceCIDR](t, c, "/apis/networking.k8s.io/v1/servicecidrs/kubernetes")
		if ranges[0] == "fd01::/112" {
			ranges = []string{"10.96.0.0/16", "fd00::/112"} // it is not replaced
			if events := get[corev1.EventList](t, c, "/api/v1/namespaces/default/events").Items; len(events) != 1 || events[0].Reason != "KubernetesDefaultServiceCIDRInconsistent" {
				t.Errorf("events %v", events)
			}
		}
		if !slices.Equal(got.Spec.CIDRs, ranges) || len(got.Status.Conditions) != 1 || got.Status.Conditions[0].Status != "True" {
			t.Errorf("got %+v, want %v", got, ranges)
		}
	}
}
