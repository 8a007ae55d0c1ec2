package plugins

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"portico/resource"
	"portico/resource/rest"
)

// subresourceOf returns the subresource of a write; "": the object itself.
func subresourceOf(a *rest.Attributes) string {
	if a.Action == nil {
		return ""
	}
	return a.Action.Subresource
}

// whole reports whether a write is one of the object itself, not of a subresource.
func whole(a *rest.Attributes) bool { return subresourceOf(a) == "" }

// written returns the new object of a write of the object itself, if it is a T.
func written[T rest.Object](a *rest.Attributes) (T, bool) {
	obj, ok := a.Object.(T)
	return obj, ok && whole(a)
}

// podOf returns the new pod of a write of a pod itself; nil for other writes.
func podOf(a *rest.Attributes) *corev1.Pod {
	pod, ok := written[*corev1.Pod](a)
	if !ok {
		return nil
	}
	return pod
}

// forbidden is the 403 of a plugin; another 403 is returned as it is.
func forbidden(a *rest.Attributes, err error) error {
	if apierrors.IsForbidden(err) {
		return err
	}
	name := a.Key.Name
	if obj, failed := meta.Accessor(a.Object); name == "" && failed == nil {
		name = cmp.Or(obj.GetName(), obj.GetGenerateName())
	}
	return apierrors.NewForbidden(a.Kind.GroupResource(), cmp.Or(name, "Unknown"), err)
}

// cached reads from the cache.
var cached = resource.At{Freshness: resource.Any}

// read returns an object of a resource.
func read[T rest.Object](ctx context.Context, r *rest.Resource, key resource.Key, at resource.At) (T, error) {
	o, err := r.Store.Get(ctx, key, at)
	if err != nil {
		return *new(T), err
	}
	return decode[T](r, o)
}

// readLive is read from the cache, and from storage if the cache does not have the object.
func readLive[T rest.Object](ctx context.Context, r *rest.Resource, key resource.Key) (T, error) {
	obj, err := read[T](ctx, r, key, cached)
	if apierrors.IsNotFound(err) {
		return read[T](ctx, r, key, resource.At{})
	}
	return obj, err
}

// list returns the objects of a namespace, or of all ("": also of a cluster-scoped resource), from
// the cache.
func list[T rest.Object](ctx context.Context, r *rest.Resource, namespace string) ([]T, error) {
	found, err := r.Store.List(ctx, resource.ListOptions{Namespace: namespace, At: cached})
	if err != nil {
		return nil, err
	}
	out := make([]T, len(found.Items))
	for i, o := range found.Items {
		if out[i], err = decode[T](r, o); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func decode[T rest.Object](r *rest.Resource, o *resource.Object) (T, error) {
	obj, err := r.Decode(o)
	if err != nil {
		return *new(T), err
	}
	out, ok := obj.(T)
	if !ok {
		return *new(T), fmt.Errorf("unexpected type %T of %s", obj, r.GroupResource())
	}
	return out, nil
}

// newest returns the newest object, of those of one second the first by name; the zero value
// without any.
func newest[T rest.Object](objects []T) (best T) {
	for i, o := range objects {
		if i == 0 || byAge(o, best) < 0 {
			best = o
		}
	}
	return best
}

// byAge orders newer objects first, and those of one second by name.
func byAge(a, b rest.Object) int {
	return cmp.Or(b.GetCreationTimestamp().Compare(a.GetCreationTimestamp().Time), cmp.Compare(a.GetName(), b.GetName()))
}
