package core

import (
	"testing"

	"portico/resource"
)

// The answer to a write got lost, the write did not.
func TestReleaseSparesAStoredService(t *testing.T) {
	c := newCore(t, Config{})
	start(t, c.cache.Run)
	eventually(t, "the cache is ready", c.cache.Ready)
	svc := service("lost", "10.96.7.8")
	release, err := c.addresses.allocate(t.Context(), svc, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	svc.Spec.ClusterIPs = []string{"10.96.7.8"}
	if err := create(t.Context(), c.find("", "services"), svc); err != nil {
		t.Fatal(err)
	}
	release()
	if _, err := c.addresses.claims.Get(t.Context(), resource.Key{Name: "10.96.7.8"}, resource.At{}); err != nil {
		t.Errorf("its claim: %v", err)
	}
	if _, err := c.addresses.allocate(t.Context(), service("thief", "10.96.0.1"), nil, false); err == nil {
		t.Error("the first address is given away before default/kubernetes is there")
	}
}
