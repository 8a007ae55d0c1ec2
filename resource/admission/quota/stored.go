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
	list, err := s.Store.List(ctx, resource.ListOptions{Namespace: namespace, At: at})
	if err != nil {
		return nil, err
	}
	out := make([]*corev1.ResourceQuota, 0, len(list.Items))
	for _, o := range list.Items {
		obj, err := s.Decode(o)
		if err != nil {
			return nil, err
		}
		out = append(out, obj.(*corev1.ResourceQuota))
	}
	return out, nil
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
