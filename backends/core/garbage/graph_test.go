package garbage

import (
	"testing"

	"portico/resource"
	"portico/resource/watchcache"
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

// Objects that are not in the next whole state of their source are gone, and those of other sources stay. A source that ends takes
// its own objects with it.
func TestWholeStates(t *testing.T) {
	t.Parallel()
	g := NewGraph(func(ID) {})
	first, second := &feed{graph: g, synced: func() {}}, &feed{graph: g, synced: func() {}}
	send := func(f *feed, names ...string) {
		f.begin()
		for _, name := range names {
			f.receive(watchcache.HeaderEvent{Type: resource.Added, Header: &resource.Header{APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: name}})
		}
		f.receive(watchcache.HeaderEvent{Type: resource.Synced})
	}
	check := func(when string, want ...string) {
		t.Helper()
		for _, name := range want {
			if g.get(ID{Kind: "ConfigMap", UID: name}) == nil {
				t.Errorf("%s: %s is missing", when, name)
			}
		}
		if g.Len() != len(want) {
			t.Errorf("%s: %d objects, want %v", when, g.Len(), want)
		}
	}
	send(first, "a", "b")
	send(second, "c")
	check("first states", "a", "b", "c")
	send(first, "a", "d")
	check("next state", "a", "c", "d")
	first.forget()
	check("a source ended", "c")
}
