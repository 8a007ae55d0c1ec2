package admission

import (
	"context"
	"testing"

	"portico/resource"
)

// slowGet is a store that calls meanwhile during Get.
type slowGet struct {
	resource.Store
	meanwhile func()
}

func (s slowGet) Get(context.Context, resource.Key, resource.At) (*resource.Object, error) {
	o, err := resource.Parse([]byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"brief"}}`))
	s.meanwhile()
	return o, err
}

// The result of a live read is not cached if a newer state was read meanwhile: the namespace
// may be deleted since.
func TestOutdatedLookupIsNotCached(t *testing.T) {
	n := NewNamespaceStates(nil, nil)
	n.store = slowGet{meanwhile: func() { n.known.Store(&map[string]bool{}) }}
	if got, err := n.Lookup(t.Context(), "brief", true); err != nil || !got.Exists {
		t.Fatalf("asked: %+v, %v", got, err)
	}
	if got, _ := n.Lookup(t.Context(), "brief", false); got.Exists {
		t.Error("the result was cached beside a newer state")
	}
	n.store = slowGet{meanwhile: func() {}}
	if _, err := n.Lookup(t.Context(), "brief", true); err != nil {
		t.Fatal(err)
	}
	if got, _ := n.Lookup(t.Context(), "brief", false); !got.Exists {
		t.Error("the result was not cached")
	}
}
