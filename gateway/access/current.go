package access

import (
	"context"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
	"portico/resource/rest"
)

// current returns the index of the policy as it is stored now. The followed one may be older:
// the role of a new binding may have been created just before it, and escalation checks need
// the present rules of a role.
//
// It takes four lists of objects, most of which are decoded already, for writes of the
// policy, which are rare. Before Run it returns the followed index.
func (a *Access) current(ctx context.Context) (*index, error) {
	a.mu.Lock()
	known, idx := a.state, a.index.Load()
	a.mu.Unlock()
	resources := a.resources.Load()
	if resources == nil {
		if idx == nil {
			return nil, resource.Unavailable("the access policy has not been read yet", 1)
		}
		return idx, nil
	}
	var now policyState
	unchanged := idx != nil
	for kind, r := range resources {
		list, err := r.Store.List(ctx, resource.ListOptions{})
		switch {
		case apierrors.IsTooManyRequests(err):
			// The cache has read nothing yet.
			return nil, resource.Unavailable("the access policy cannot be read now: "+err.Error(), 1)
		case err != nil:
			return nil, fmt.Errorf("list %s: %w", r.Resource, err)
		}
		var same bool
		now.objects[kind], same = a.decodeAll(r, list.Items, known.objects[kind])
		unchanged = unchanged && same
	}
	if unchanged {
		return idx, nil
	}
	return newIndex(&now), nil
}

// decodeAll decodes objects, and reuses known ones of the same revision. same reports whether
// the result equals known. An object that does not decode is omitted, so it grants nothing.
func (a *Access) decodeAll(r *rest.Resource, items []*resource.Object, known []rest.Object) (list []rest.Object, same bool) {
	list = make([]rest.Object, 0, len(items))
	var byKey map[resource.Key]rest.Object
	same = true
	for i, o := range items {
		if same && i < len(known) && isRevision(known[i], o) {
			list = append(list, known[i])
			continue
		}
		same = false
		if byKey == nil {
			byKey = make(map[resource.Key]rest.Object, len(known))
			for _, obj := range known {
				byKey[resource.Key{Namespace: obj.GetNamespace(), Name: obj.GetName()}] = obj
			}
		}
		if obj, ok := byKey[o.Key()]; ok && isRevision(obj, o) {
			list = append(list, obj)
			continue
		}
		obj, err := r.Decode(o)
		if err != nil {
			a.log.Error("decoding a policy object failed, it grants nothing", "kind", r.Kind.Kind, "object", o.Key().String(), "err", err)
			continue
		}
		obj.SetManagedFields(nil) // not used here, and most of the object
		list = append(list, obj)
	}
	return list, same && len(items) == len(known)
}

// isRevision reports whether obj was decoded from this revision of an object.
func isRevision(obj rest.Object, o *resource.Object) bool {
	return obj.GetName() == o.Name && obj.GetNamespace() == o.Namespace && o.Revision != 0 &&
		obj.GetResourceVersion() == strconv.FormatInt(o.Revision, 10)
}
