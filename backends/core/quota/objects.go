package quota

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"portico/resource"
	"portico/resource/rest"
)

// lookupTimeout bounds a read that a write waits for.
const lookupTimeout = 5 * time.Second

// Stored returns the objects in the stores of this process.
func Stored(find func(group, resource string) *rest.Resource) Objects { return stored{find} }

type stored struct {
	find func(group, resource string) *rest.Resource
}

// DeviceClasses implements Objects.
func (s stored) DeviceClasses() ([]*resourcev1.DeviceClass, error) {
	return list[*resourcev1.DeviceClass](s.find(resourcev1.GroupName, "deviceclasses"), "")
}

// ResourceClaims implements Objects.
func (s stored) ResourceClaims(namespace string) ([]*resourcev1.ResourceClaim, error) {
	return list[*resourcev1.ResourceClaim](s.find(resourcev1.GroupName, "resourceclaims"), namespace)
}

// Pod implements Objects.
func (s stored) Pod(namespace, name string) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	r := s.find("", "pods")
	o, err := r.Store.Get(ctx, resource.Key{Namespace: namespace, Name: name}, resource.At{Freshness: resource.Any})
	if err != nil {
		return nil, err
	}
	obj, err := r.Decode(o)
	if err != nil {
		return nil, err
	}
	return as[*corev1.Pod](obj)
}

// list returns the objects of a resource in memory; none if it is not served.
func list[T rest.Object](r *rest.Resource, namespace string) ([]T, error) {
	if r == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	found, err := r.Store.List(ctx, resource.ListOptions{Namespace: namespace, At: resource.At{Freshness: resource.Any}})
	if err != nil {
		return nil, err
	}
	out := make([]T, 0, len(found.Items))
	for _, o := range found.Items {
		obj, err := r.Decode(o)
		if err != nil {
			return nil, err
		}
		t, err := as[T](obj)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}
