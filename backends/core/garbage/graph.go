package garbage

import (
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
)

// ID identifies an object. A server chooses the uids of its objects, and not their group and
// kind, so that it cannot replace or remove an object of another server.
type ID struct {
	Group, Kind, UID string
}

// idOf returns the ID of an object.
func idOf(h *resource.Header) ID { return ID{group(h.APIVersion), h.Kind, h.UID} }

// ownerID returns the ID of the owner that a reference names.
func ownerID(o resource.Owner) ID { return ID{group(o.APIVersion), o.Kind, o.UID} }

// Graph has the metadata of all objects, and which of them are owned by which. It is safe for
// concurrent use.
type Graph struct {
	// look is called with an object to look at, while mu is held.
	look func(ID)

	mu      sync.Mutex
	objects map[ID]node
	// dependents are the objects that refer to an owner, which need not be in objects.
	dependents map[ID]map[ID]bool
}

// node is an object in a graph.
type node struct {
	*resource.Header
	// from is the state in which the object was last seen; nil: none.
	from *state
}

// state is one whole state of a source, with the changes that follow it.
type state struct{ of *feed }

// NewGraph returns an empty graph. look is called with each object that may have to be deleted
// or changed; it must not block and must not call the graph.
func NewGraph(look func(ID)) *Graph {
	return &Graph{look: look, objects: map[ID]node{}, dependents: map[ID]map[ID]bool{}}
}

// Set adds or replaces the metadata of an object.
func (g *Graph) Set(h *resource.Header) { g.set(h, nil) }

// set is Set of an object in a state.
func (g *Graph) set(h *resource.Header, from *state) {
	g.mu.Lock()
	defer g.mu.Unlock()
	id := idOf(h)
	old := g.objects[id].Header
	g.objects[id] = node{h, from}
	g.index(h, old)
	if waits(h) && (old == nil || !waits(old)) {
		g.look(id)
		for dependent := range g.dependents[id] {
			g.look(dependent)
		}
	}
	if old == nil || !slices.Equal(h.Owners, old.Owners) {
		g.lookAtOwned(h, old)
	}
}

// index updates dependents after the owners of an object changed from those of old, which may
// be nil.
func (g *Graph) index(h, old *resource.Header) {
	id := idOf(h)
	if old != nil {
		g.unlinkAll(id, old)
	}
	for _, o := range h.Owners {
		owner := ownerID(o)
		if g.dependents[owner] == nil {
			g.dependents[owner] = map[ID]bool{}
		}
		g.dependents[owner][id] = true
	}
}

// unlinkAll removes an object from the dependents of its owners.
func (g *Graph) unlinkAll(id ID, h *resource.Header) {
	for _, o := range h.Owners {
		g.unlink(ownerID(o), id)
	}
}

func (g *Graph) unlink(owner, dependent ID) {
	delete(g.dependents[owner], dependent)
	if len(g.dependents[owner]) == 0 {
		delete(g.dependents, owner)
	}
}

// lookAtOwned looks at an object with new owner references if one of its owners is not known
// or waits for its dependents, and at the owners that an object held up before.
func (g *Graph) lookAtOwned(h, old *resource.Header) {
	for _, o := range h.Owners {
		if owner := g.objects[ownerID(o)].Header; owner == nil || !is(owner, ref(h, o)) || waits(owner) {
			g.look(idOf(h))
			break
		}
	}
	if old != nil {
		g.lookAtOwners(old)
	}
}

// lookAtOwners looks at the owners of an object that wait for their dependents.
func (g *Graph) lookAtOwners(h *resource.Header) {
	for _, o := range h.Owners {
		if owner := g.objects[ownerID(o)].Header; owner != nil && waits(owner) {
			g.look(ownerID(o))
		}
	}
}

// Remove removes an object that is deleted, and looks at its dependents and at the owners that
// waited for it.
func (g *Graph) Remove(id ID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.objects[id].Header
	if h == nil {
		return
	}
	delete(g.objects, id)
	g.unlinkAll(id, h)
	for dependent := range g.dependents[id] {
		g.look(dependent)
	}
	g.lookAtOwners(h)
}

// Forget removes objects that may still exist, without looking at others.
func (g *Graph) Forget(ids []ID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, id := range ids {
		if h := g.objects[id].Header; h != nil {
			delete(g.objects, id)
			g.unlinkAll(id, h)
		}
	}
}

// of returns the objects that were last seen in a state of a source other than except.
func (g *Graph) of(f *feed, except *state) []ID {
	g.mu.Lock()
	defer g.mu.Unlock()
	var ids []ID
	for id, n := range g.objects {
		if n.from != nil && n.from.of == f && n.from != except {
			ids = append(ids, id)
		}
	}
	return ids
}

// get returns the metadata of an object; nil: it is not known.
func (g *Graph) get(id ID) *resource.Header {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.objects[id].Header
}

// dependentsOf returns the metadata of the other objects that refer to an owner by its name and
// from where it can be referred to. One that refers to its uid only, such as an object in another
// namespace, is no dependent.
func (g *Graph) dependentsOf(owner ID) []*resource.Header {
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.objects[owner].Header
	out := make([]*resource.Header, 0, len(g.dependents[owner]))
	for id := range g.dependents[owner] {
		d := g.objects[id].Header
		if id != owner && (h == nil || slices.ContainsFunc(d.Owners, func(o resource.Owner) bool { return ownerID(o) == owner && is(h, ref(d, o)) })) {
			out = append(out, d)
		}
	}
	return out
}

// Len returns the number of objects.
func (g *Graph) Len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.objects)
}

// Ref names one object of one kind.
type Ref struct {
	APIVersion, Kind, Namespace, Name, UID string
}

// ref names an owner of an object: one in its namespace, or one without a namespace, which
// the API of the kind decides.
func ref(h *resource.Header, o resource.Owner) Ref {
	return Ref{APIVersion: o.APIVersion, Kind: o.Kind, Namespace: h.Namespace, Name: o.Name, UID: o.UID}
}

// is reports whether an object with the ID of a reference is the one that it names.
func is(h *resource.Header, r Ref) bool {
	return h.Name == r.Name && (h.Namespace == "" || h.Namespace == r.Namespace)
}

// orphaning reports whether the dependents of an object lose their reference before it is
// deleted.
func orphaning(h *resource.Header) bool {
	return h.Terminating() && slices.Contains(h.Finalizers, metav1.FinalizerOrphanDependents)
}

// foreground reports whether an object waits for its dependents to be deleted.
func foreground(h *resource.Header) bool {
	return h.Terminating() && slices.Contains(h.Finalizers, metav1.FinalizerDeleteDependents)
}

// waits reports whether the deletion of an object waits for its dependents.
func waits(h *resource.Header) bool { return foreground(h) || orphaning(h) }
