package garbage

import (
	"testing"

	"portico/resource"
)

// A server that lists an object with the uid of another server's object neither replaces nor
// removes it.
func TestUIDOfAnotherServer(t *testing.T) {
	t.Parallel()
	var looked []ID
	g := NewGraph(func(id ID) { looked = append(looked, id) })
	owner := &resource.Header{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "default", Name: "a", UID: "1"}
	dependent := &resource.Header{
		APIVersion: "apps/v1", Kind: "ReplicaSet", Namespace: "default", Name: "b", UID: "2",
		Owners: []resource.Owner{{APIVersion: "apps/v1", Kind: "Deployment", Name: "a", UID: "1"}},
	}
	g.Set(owner)
	g.Set(dependent)
	forged := &resource.Header{APIVersion: "example.com/v1", Kind: "Widget", Namespace: "default", Name: "a", UID: "1"}
	g.Set(forged)
	g.Remove(idOf(forged))
	if got := g.get(idOf(owner)); got != owner {
		t.Errorf("the owner is %v, want %v", got, owner)
	}
	if len(looked) > 0 {
		t.Errorf("looked at %v, want none", looked)
	}
	g.Remove(idOf(owner))
	if len(looked) != 1 || looked[0] != idOf(dependent) {
		t.Errorf("looked at %v, want the dependent", looked)
	}
}
