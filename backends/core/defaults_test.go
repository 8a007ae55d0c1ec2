package core

import (
	"os"
	"path/filepath"
	"testing"

	"portico/resource"
	"portico/resource/loop"
)

func TestNamespaceDefaultsWithoutTheFile(t *testing.T) {
	c := running(t, Config{RootCAFile: filepath.Join(t.TempDir(), "not-yet")})
	createNamespace(t, c, "shop")
	eventually(t, "the default account is made although there is no root CA", func() bool { return !missing(t, c, "/api/v1/namespaces/shop/serviceaccounts/default") })
	if err := os.WriteFile(c.cfg.RootCAFile, []byte("late bundle"), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the root CA is published once it is there", func() bool { return !missing(t, c, "/api/v1/namespaces/shop/configmaps/kube-root-ca.crt") })
}

// A drained namespace may be in the snapshot of namespaces after that of accounts shows it
// empty; no object is created in it.
func TestNamespaceDefaultsLeaveNothingInGoneNamespaces(t *testing.T) {
	c := newCore(t, Config{RootCAFile: writeFile(t, "ca.crt", []byte("bundle"))})
	start(t, c.cache.Run)
	eventually(t, "the cache is ready", c.cache.Ready)
	createNamespace(t, c, "going")
	c.must(t, "DELETE", "/api/v1/namespaces/going", nil, nil)
	living := func(name string) *resource.Object {
		return &resource.Object{Header: resource.Header{Name: name}}
	}
	d := &namespaceDefaults{
		core:       c,
		namespaces: &loop.Snapshot{Items: []*resource.Object{living("going"), living("gone")}},
		accounts:   &loop.Snapshot{}, ca: &loop.Snapshot{},
	}
	if err := d.reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, res := range []string{"serviceaccounts", "configmaps"} {
		list, err := c.find("", res).Store.List(t.Context(), resource.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Items) != 0 {
			t.Errorf("%d %s were made in namespaces that are going or gone", len(list.Items), res)
		}
	}
}
