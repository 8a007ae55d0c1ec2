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
// It takes four lists of objects, most of which are decoded already, and an index of them, for
// writes of the policy, which are rare. Before Run it returns the followed index.
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
	for kind, r := range resources {
		list, err := r.Store.List(ctx, resource.ListOptions{})
		switch {
		case apierrors.IsTooManyRequests(err):
			// The cache has read nothing yet.
			return nil, resource.Unavailable("the access policy cannot be read now: "+err.Error(), 1)
		case err != nil:
			return nil, fmt.Errorf("list %s: %w", r.Resource, err)
		}
		now.objects[kind] = a.decodeAll(r, list.Items, known.objects[kind])
	}
	return newIndex(&now), nil
}

// decodeAll decodes objects, and reuses known ones of the same revision. An object that does not
// decode is omitted, so it grants nothing.
func (a *Access) decodeAll(r *rest.Resource, items []*resource.Object, known []rest.Object) []rest.Object {
	byKey := make(map[resource.Key]rest.Object, len(known))
	for _, obj := range known {
		byKey[resource.Key{Namespace: obj.GetNamespace(), Name: obj.GetName()}] = obj
	}
	list := make([]rest.Object, 0, len(items))
	for _, o := range items {
		if obj, ok := byKey[o.Key()]; ok && o.Revision != 0 && obj.GetResourceVersion() == strconv.FormatInt(o.Revision, 10) {
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
	return list
}
