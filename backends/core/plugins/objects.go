package plugins

import (
	"cmp"
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

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

// readLive returns an object from the cache, or from storage if the cache does not have it.
func readLive[T rest.Object](ctx context.Context, r *rest.Resource, key resource.Key) (T, error) {
	obj, err := rest.GetObject[T](ctx, r, key, cached)
	if apierrors.IsNotFound(err) {
		return rest.GetObject[T](ctx, r, key, resource.At{})
	}
	return obj, err
}

// readListed is readLive with the error of client-go's listers for a missing object, which names the
// kind and not the resource.
func readListed[T rest.Object](ctx context.Context, r *rest.Resource, key resource.Key) (T, error) {
	obj, err := readLive[T](ctx, r, key)
	if apierrors.IsNotFound(err) {
		err = apierrors.NewNotFound(schema.GroupResource{Group: r.Group, Resource: strings.ToLower(r.Kind.Kind)}, key.Name)
	}
	return obj, err
}

// list returns the objects of a namespace, or of all ("": also of a cluster-scoped resource), from
// the cache.
func list[T rest.Object](ctx context.Context, r *rest.Resource, namespace string) ([]T, error) {
	return rest.ListObjects[T](ctx, r, resource.ListOptions{Namespace: namespace, At: cached})
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
