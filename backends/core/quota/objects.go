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
	return rest.GetObject[*corev1.Pod](ctx, s.find("", "pods"), resource.Key{Namespace: namespace, Name: name}, resource.At{Freshness: resource.Any})
}

// list returns the objects of a resource in memory; none if it is not served.
func list[T rest.Object](r *rest.Resource, namespace string) ([]T, error) {
	if r == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	return rest.ListObjects[T](ctx, r, resource.ListOptions{Namespace: namespace, At: resource.At{Freshness: resource.Any}})
}
