package garbage

import (
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
)

// Graph has the metadata of all objects, by uid, and which of them are owned by which. It is
// safe for concurrent use.
type Graph struct {
	// look is called with the uid of an object to look at, while mu is held.
	look func(uid string)

	mu      sync.Mutex
	objects map[string]*resource.Header
	// dependents are the uids of the objects that refer to an owner, which need not be in
	// objects.
	dependents map[string]map[string]bool
}

// NewGraph returns an empty graph. look is called with the uid of each object that may have
// to be deleted or changed; it must not block and must not call the graph.
func NewGraph(look func(uid string)) *Graph {
	return &Graph{look: look, objects: map[string]*resource.Header{}, dependents: map[string]map[string]bool{}}
}

// Set adds or replaces the metadata of an object.
func (g *Graph) Set(h *resource.Header) {
	g.mu.Lock()
	defer g.mu.Unlock()
	old := g.objects[h.UID]
	g.objects[h.UID] = h
	g.index(h, old)
	if waits(h) && (old == nil || !waits(old)) {
		g.look(h.UID)
		for uid := range g.dependents[h.UID] {
			g.look(uid)
		}
	}
	if old == nil || !slices.Equal(h.Owners, old.Owners) {
		g.lookAtOwned(h, old)
	}
}

// index updates dependents after the owners of an object changed from those of old, which may
// be nil.
func (g *Graph) index(h, old *resource.Header) {
	if old != nil {
		for _, o := range old.Owners {
			if !refersTo(h, o.UID) {
				g.unlink(o.UID, h.UID)
			}
		}
	}
	for _, o := range h.Owners {
		if g.dependents[o.UID] == nil {
			g.dependents[o.UID] = map[string]bool{}
		}
		g.dependents[o.UID][h.UID] = true
	}
}

func (g *Graph) unlink(owner, dependent string) {
	delete(g.dependents[owner], dependent)
	if len(g.dependents[owner]) == 0 {
		delete(g.dependents, owner)
	}
}

// lookAtOwned looks at an object with new owner references if one of its owners is not known
// or waits for its dependents, and at the owners that an object held up before.
func (g *Graph) lookAtOwned(h, old *resource.Header) {
	for _, o := range h.Owners {
		if owner := g.objects[o.UID]; owner == nil || !is(owner, ref(h, o)) || waits(owner) {
			g.look(h.UID)
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
		if owner := g.objects[o.UID]; owner != nil && waits(owner) {
			g.look(o.UID)
		}
	}
}

// Remove removes an object that is deleted, and looks at its dependents and at the owners that
// waited for it.
func (g *Graph) Remove(uid string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.objects[uid]
	if h == nil {
		return
	}
	delete(g.objects, uid)
	for _, o := range h.Owners {
		g.unlink(o.UID, uid)
	}
	for dependent := range g.dependents[uid] {
		g.look(dependent)
	}
	g.lookAtOwners(h)
}

// Forget removes objects that may still exist, without looking at others.
func (g *Graph) Forget(uids []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, uid := range uids {
		h := g.objects[uid]
		if h == nil {
			continue
		}
		delete(g.objects, uid)
		for _, o := range h.Owners {
			g.unlink(o.UID, uid)
		}
	}
}

// get returns the metadata of an object; nil: it is not known.
func (g *Graph) get(uid string) *resource.Header {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.objects[uid]
}

// dependentsOf returns the metadata of the other objects that refer to an owner.
func (g *Graph) dependentsOf(uid string) []*resource.Header {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]*resource.Header, 0, len(g.dependents[uid]))
	for d := range g.dependents[uid] {
		if d != uid {
			out = append(out, g.objects[d])
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

// is reports whether an object is the one that a reference names. Versions of a group are
// versions of the same objects.
func is(h *resource.Header, r Ref) bool {
	return h.UID == r.UID && h.Kind == r.Kind && h.Name == r.Name && group(h.APIVersion) == group(r.APIVersion) &&
		(h.Namespace == "" || h.Namespace == r.Namespace)
}

func refersTo(h *resource.Header, owner string) bool {
	return slices.ContainsFunc(h.Owners, func(o resource.Owner) bool { return o.UID == owner })
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
