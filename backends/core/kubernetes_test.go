package core

import (
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// A restart with another address replaces the endpoints; missing ones are created again.
func TestKubernetesEndpointsFollowTheAddress(t *testing.T) {
	c := newCore(t, Config{})
	start(t, c.cache.Run)
	eventually(t, "the cache is ready", c.cache.Ready)
	createNamespace(t, c, "default")
	const slice = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"
	for _, host := range []string{"192.0.2.1", "192.0.2.2"} {
		c.cfg.AdvertiseAddress = host + ":6443"
		k := &kubernetesService{core: c}
		if err := k.ensure(t.Context()); err != nil {
			t.Fatal(err)
		}
		if es := get[discoveryv1.EndpointSlice](t, c, slice); es.Endpoints[0].Addresses[0] != host {
			t.Errorf("endpoints are %v, want %s", es.Endpoints, host)
		}
		c.must(t, "DELETE", slice, nil, nil)
		if err := k.ensure(t.Context()); err != nil || missing(t, c, slice) {
			t.Errorf("deleted endpoints do not come back: %v", err)
		}
	}
}
