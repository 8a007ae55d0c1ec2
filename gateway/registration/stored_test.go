package registration

import (
	"fmt"
	"testing"

	"portico/apiservice/backend"
	"portico/gateway/routing"
	"portico/gateway/upstream"
	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/rest"
)

func backendsInMemory(t testing.TB) *rest.Resource {
	t.Helper()
	k, err := backend.Kind()
	if err != nil {
		t.Fatal(err)
	}
	return &rest.Resource{Kind: k, Store: memstore.New().Store(&k.Info)}
}

// storedBackends returns what is stored.
func storedBackends(t testing.TB, r *rest.Resource) (out []*backend.Backend) {
	t.Helper()
	list, err := r.Store.List(t.Context(), resource.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range list.Items {
		obj, err := r.Decode(o)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, obj.(*backend.Backend))
	}
	return out
}

func keyNamed(name string) resource.Key { return resource.Key{Name: name} }

// onSocket is a Backend that a gateway starts with.
func onSocket(t testing.TB, name, path string) *routing.StaticBackend {
	t.Helper()
	c, err := routing.NewStaticBackend(routing.Backend{Name: name, URL: "unix://" + path}, upstream.Trust{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func groupName(i int) string { return fmt.Sprintf("group-%04d.example.com", i) }
