package access

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
	"portico/resource/rest"
)

// kept is where the four kinds of the policy are stored.
type kept struct{ roles, clusterRoles, bindings, clusterBinds *rest.Resource }

// current returns the index of the policy as it is stored now. The followed one may
// lag behind: the role of a new binding may have been created just before it, and
// escalation checks need the rules that a role has now.
//
// It costs four lists of objects, most of them decoded already, and is meant for
// writes of the policy, which are rare. Before Run it is the followed index.
func (a *Access) current(ctx context.Context) (*index, error) {
	k := a.kept.Load()
	a.mu.Lock()
	known, idx := a.state, a.index.Load()
	a.mu.Unlock()
	if k == nil {
		if idx == nil {
			return nil, resource.Unavailable("the access policy has not been read yet", 1)
		}
		return idx, nil
	}
	var now policyState
	var err error
	same := idx != nil
	for _, read := range []func() (bool, error){
		func() (bool, error) { return latest(ctx, a.log, k.roles, known.roles, &now.roles) },
		func() (bool, error) {
			return latest(ctx, a.log, k.clusterRoles, known.clusterRoles, &now.clusterRoles)
		},
		func() (bool, error) { return latest(ctx, a.log, k.bindings, known.bindings, &now.bindings) },
		func() (bool, error) {
			return latest(ctx, a.log, k.clusterBinds, known.clusterBinds, &now.clusterBinds)
		},
	} {
		is, failed := read()
		if failed != nil {
			err = failed
			break // the storage is away: the others would wait as long
		}
		same = same && is
	}
	switch {
	case apierrors.IsTooManyRequests(err):
		// The cache has read nothing yet.
		return nil, resource.Unavailable("the access policy cannot be read now: "+err.Error(), 1)
	case err != nil:
		return nil, err
	case same:
		return idx, nil
	}
	return newIndex(&now), nil
}

// latest reads what is stored now of one kind. same reports whether that is
// what was known.
func latest[T rest.Object](ctx context.Context, log *slog.Logger, r *rest.Resource, known []T, now *[]T) (same bool, err error) {
	stored, err := r.Store.List(ctx, resource.ListOptions{})
	if err != nil {
		return false, fmt.Errorf("list %s: %w", r.Resource, err)
	}
	*now, same = decodeAll(log, r, stored.Items, known)
	return same, nil
}

// decodeAll decodes objects, reusing those that are known in the same revision.
// same reports whether the result is what was known. An object that does not
// decode is left out: it grants nothing.
func decodeAll[T rest.Object](log *slog.Logger, r *rest.Resource, items []*resource.Object, known []T) (list []T, same bool) {
	list = make([]T, 0, len(items))
	var byKey map[resource.Key]T
	same = true
	for i, o := range items {
		if same && i < len(known) && isOf(known[i], o) {
			list = append(list, known[i])
			continue
		}
		same = false
		if byKey == nil {
			byKey = make(map[resource.Key]T, len(known))
			for _, obj := range known {
				byKey[resource.Key{Namespace: obj.GetNamespace(), Name: obj.GetName()}] = obj
			}
		}
		if obj, ok := byKey[o.Key()]; ok && isOf(obj, o) {
			list = append(list, obj)
			continue
		}
		obj, err := r.Decode(o)
		if err != nil {
			log.Error("a policy object does not decode and grants nothing", "kind", r.Kind.Kind, "object", o.Key().String(), "err", err)
			continue
		}
		obj.SetManagedFields(nil) // not used here, and most of the object
		list = append(list, obj.(T))
	}
	return list, same && len(items) == len(known)
}

// isOf reports whether obj was decoded from this revision of an object.
func isOf(obj rest.Object, o *resource.Object) bool {
	return obj.GetName() == o.Name && obj.GetNamespace() == o.Namespace && o.Revision != 0 &&
		obj.GetResourceVersion() == strconv.FormatInt(o.Revision, 10)
}
