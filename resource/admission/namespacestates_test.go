package admission

import (
	"context"
	"testing"

	"portico/resource"
)

// slowGet is a store that does something while it answers.
type slowGet struct {
	resource.Store
	meanwhile func()
}

func (s slowGet) Get(context.Context, resource.Key, resource.At) (*resource.Object, error) {
	o, err := resource.Parse([]byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"brief"}}`))
	s.meanwhile()
	return o, err
}

// A live answer that a newer state overtook is good for the request that asked,
// but is not remembered: the namespace may be gone, and nothing would say so
// again.
func TestOvertakenAnswerIsNotRemembered(t *testing.T) {
	n := NewNamespaceStates(nil, nil)
	n.store = slowGet{meanwhile: func() { n.known.Store(&map[string]bool{}) }}
	if got, err := n.Lookup(t.Context(), "brief", true); err != nil || !got.Exists {
		t.Fatalf("asked: %+v, %v", got, err)
	}
	if got, _ := n.Lookup(t.Context(), "brief", false); got.Exists {
		t.Error("the answer was remembered beside a newer state")
	}
	n.store = slowGet{meanwhile: func() {}}
	if _, err := n.Lookup(t.Context(), "brief", true); err != nil {
		t.Fatal(err)
	}
	if got, _ := n.Lookup(t.Context(), "brief", false); !got.Exists {
		t.Error("the answer was not remembered")
	}
}
