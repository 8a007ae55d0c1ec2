package quota

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
	"portico/resource/rest"
)

// Stored returns the quotas in a store of this process.
func Stored(r *rest.Resource) Quotas { return &stored{r} }

type stored struct{ *rest.Resource }

// List implements Quotas.
func (s *stored) List(ctx context.Context, namespace string, latest bool) ([]*corev1.ResourceQuota, error) {
	at := resource.At{Freshness: resource.Any}
	if latest {
		at = resource.At{}
	}
	return rest.ListObjects[*corev1.ResourceQuota](ctx, s.Resource, resource.ListOptions{Namespace: namespace, At: at})
}

// UpdateStatus implements Quotas.
func (s *stored) UpdateStatus(ctx context.Context, q *corev1.ResourceQuota) error {
	_, err := rest.Modify(ctx, s.Resource, resource.Key{Namespace: q.Namespace, Name: q.Name}, func(cur *corev1.ResourceQuota) error {
		if cur.ResourceVersion != q.ResourceVersion {
			return apierrors.NewConflict(s.GroupResource(), q.Name,
				errors.New("the object has been modified; please apply your changes to the latest version and try again"))
		}
		q.Status.DeepCopyInto(&cur.Status)
		return nil
	})
	return err
}
