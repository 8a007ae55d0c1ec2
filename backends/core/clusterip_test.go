package core

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/internal/testing/memstore"
	"portico/resource"
)

func pool(t *testing.T, cidr string) *addresses {
	t.Helper()
	a, err := newAddresses(cidr, memstore.New().Store(claimInfo()))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func service(name, ip string) *corev1.Service {
	svc := &corev1.Service{}
	svc.Namespace, svc.Name, svc.Spec.ClusterIP = "n", name, ip
	return svc
}

func TestAddressRanges(t *testing.T) {
	t.Parallel()
	for cidr, ok := range map[string]bool{
		"10.96.0.0/16": true, "10.0.0.0/8": true, "10.96.0.5/24": true, "10.96.0.0/30": true,
		"10.96.0.0/31": false, "10.96.0.0": false, "fd00::/112": false, "": false, "x": false,
	} {
		if _, err := newAddresses(cidr, nil); (err == nil) != ok {
			t.Errorf("%q: %v", cidr, err)
		}
	}
	if got := pool(t, "10.96.0.5/24").nth(1).String(); got != "10.96.0.1" {
		t.Errorf("first address %s", got)
	}
}

// Concurrent allocations of several servers never get one address twice, until the range is
// full.
func TestNoAddressTwice(t *testing.T) {
	t.Parallel()
	claims := memstore.New().Store(claimInfo())
	var mu sync.Mutex
	given := map[string]string{}
	var wg sync.WaitGroup
	for i := range 28 { // of 32, less the network, default/kubernetes, broadcast: 29
		a, err := newAddresses("10.0.0.0/27", claims)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			svc := service(fmt.Sprint("s", i), "")
			if _, err := a.allocate(context.Background(), svc, nil, false); err != nil {
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
	a, _ := newAddresses("10.0.0.0/27", claims)
	last := service("last", "")
	if _, err := a.allocate(t.Context(), last, nil, false); err != nil || len(last.Spec.ClusterIPs) != 1 || given[last.Spec.ClusterIP] != "" {
		t.Fatalf("got %v, %v", last.Spec, err)
	}
	for _, dryRun := range []bool{false, true} {
		if _, err := a.allocate(t.Context(), service("more", ""), nil, dryRun); err == nil || !strings.Contains(err.Error(), "range 10.0.0.0/27 is full") {
			t.Errorf("full, dry run %v: %v", dryRun, err)
		}
	}
	again := service("last", "")
	if _, err := a.allocate(t.Context(), again, nil, false); err != nil || again.Spec.ClusterIP != last.Spec.ClusterIP {
		t.Errorf("a repeated creation of the same service got %s, not %s (%v)", again.Spec.ClusterIP, last.Spec.ClusterIP, err)
	}
}

func TestRequestedAddress(t *testing.T) {
	t.Parallel()
	a := pool(t, "10.96.0.0/16")
	for ip, want := range map[string]string{
		"10.97.0.1":  "failed to allocate IP 10.97.0.1: the provided IP (10.97.0.1) is not in the valid range. The range of valid IPs is 10.96.0.0/16",
		"10.96.0.50": "",
	} {
		_, err := a.allocate(t.Context(), service("a", ip), nil, false)
		if want == "" && err != nil || want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", ip, err)
		}
	}
	_, err := a.allocate(t.Context(), service("b", "10.96.0.50"), nil, false)
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "failed to allocate IP 10.96.0.50: provided IP is already allocated") {
		t.Errorf("taken: %v", err)
	}
	if _, err := a.allocate(t.Context(), service("b", "10.96.0.51"), nil, true); err != nil {
		t.Errorf("dry run: %v", err)
	}
	if _, err := a.allocate(t.Context(), service("c", "10.96.0.51"), nil, false); err != nil {
		t.Errorf("a dry run claimed: %v", err)
	}
	if _, err := a.allocate(t.Context(), service("a", "10.96.0.50"), nil, false); err != nil {
		t.Errorf("the owner again: %v", err)
	}
	if _, err := a.allocate(t.Context(), service("thief", "10.96.0.1"), nil, false); err == nil {
		t.Error("the address of default/kubernetes is allocated")
	}
}

func TestUnusedClaimsAreFreed(t *testing.T) {
	t.Parallel()
	c := running(t, Config{})
	create := func(name, ip string) *corev1.Service {
		svc := &corev1.Service{}
		c.must(t, http.MethodPost, "/api/v1/namespaces/default/services", map[string]any{
			"metadata": map[string]any{"name": name}, "spec": map[string]any{"clusterIP": ip, "ports": []any{map[string]any{"port": 80}}},
		}, svc)
		return svc
	}
	kept, gone := create("kept", "10.96.3.3"), create("gone", "")
	c.must(t, http.MethodDelete, "/api/v1/namespaces/default/services/gone", nil, nil)
	claimed := func(ip string) bool {
		_, err := c.addresses.claims.Get(t.Context(), resource.Key{Name: ip}, resource.At{})
		return err == nil
	}
	// A claim younger than the bound remains: its service may not be stored yet.
	if err := c.freeOnce(t.Context(), time.Now().Add(-time.Hour)); err != nil || !claimed(gone.Spec.ClusterIP) {
		t.Errorf("young: %v, claimed %v", err, claimed(gone.Spec.ClusterIP))
	}
	if err := c.freeOnce(t.Context(), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if claimed(gone.Spec.ClusterIP) || !claimed(kept.Spec.ClusterIP) {
		t.Errorf("gone is claimed: %v, kept is: %v", claimed(gone.Spec.ClusterIP), claimed(kept.Spec.ClusterIP))
	}
	create("other", gone.Spec.ClusterIP)
}

// A service that is refused after it got an address does not keep it: a client that sends
// invalid services does not use up the range of the others.
func TestRefusedServicesKeepNoAddress(t *testing.T) {
	t.Parallel()
	c := running(t, Config{ServiceClusterIPRange: "10.96.0.0/29"}) // five are free
	body := func(name string, port int) map[string]any {
		return map[string]any{"metadata": map[string]any{"name": name}, "spec": map[string]any{"ports": []any{map[string]any{"port": port}}}}
	}
	const path = "/api/v1/namespaces/default/services"
	for i := range 20 {
		if err := c.do(t, http.MethodPost, path, body(fmt.Sprint("refused", i), 99999), nil); !apierrors.IsInvalid(err) {
			t.Fatalf("refused%d: %v", i, err)
		}
	}
	c.must(t, http.MethodPost, path, body("accepted", 80), nil)
	if err := c.do(t, http.MethodPost, path, body("accepted", 80), nil); !apierrors.IsAlreadyExists(err) {
		t.Errorf("again: %v", err)
	}
	svc := get[corev1.Service](t, c, path+"/accepted")
	if _, err := c.addresses.claims.Get(t.Context(), resource.Key{Name: svc.Spec.ClusterIP}, resource.At{}); err != nil {
		t.Errorf("the claim of the stored service after a failed creation of its name: %v", err)
	}
}

// A write whose answer is lost has stored its service: releasing its claim does nothing.
func TestReleaseKeepsTheClaimOfAStoredService(t *testing.T) {
	t.Parallel()
	c := running(t, Config{})
	svc := service("lost", "10.96.7.8")
	svc.Namespace = "default"
	release, err := c.addresses.allocate(t.Context(), svc, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	svc.Spec.ClusterIPs = []string{"10.96.7.8"}
	svc.APIVersion, svc.Kind = "v1", "Service"
	data, err := json.Marshal(svc)
	if err != nil {
		t.Fatal(err)
	}
	o, err := resource.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.find("", "services").Store.Create(t.Context(), resource.Key{Namespace: "default", Name: "lost"}, o, 0); err != nil {
		t.Fatal(err)
	}
	release()
	if _, err := c.addresses.claims.Get(t.Context(), resource.Key{Name: "10.96.7.8"}, resource.At{}); err != nil {
		t.Errorf("its claim: %v", err)
	}
}
