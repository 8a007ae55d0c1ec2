package gateway

import (
	"fmt"
	"testing"

	"portico/apiservice/backend"
	"portico/discovery"
	"portico/gateway/routing"
	"portico/gateway/upstream"
	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/rest"
)

// onSocket is a Backend that a gateway starts with.
func onSocket(t testing.TB, name, path string) *routing.StaticBackend {
	t.Helper()
	c, err := routing.NewStaticBackend(routing.Backend{Name: name, URL: "unix://" + path}, upstream.Trust{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// customGroup describes a group with one custom resource.
func customGroup(group string) []discovery.GroupVersion {
	return discovery.FromKinds([]*rest.Kind{{
		Info:         resource.Info{Group: group, Versions: []string{"v1"}, Resource: "widgets", Kind: "Widget", Namespaced: true},
		Subresources: []rest.Subresource{{Name: "status"}},
	}})
}

func groupName(i int) string { return fmt.Sprintf("group-%04d.example.com", i) }

func backendsInMemory(t testing.TB) *rest.Resource {
	t.Helper()
	k, err := backend.Kind()
	if err != nil {
		t.Fatal(err)
	}
	return &rest.Resource{Kind: k, Store: memstore.New().Store(&k.Info)}
}
