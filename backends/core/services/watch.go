package services

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
	"portico/resource/loop"
	"portico/resource/rest"
)

// WatchClaims sets wake when a claim is deleted on an address that its Service has, until ctx
// ends.
func (s *Services) WatchClaims(ctx context.Context, wake *loop.Signal) error {
	return loop.Retry(ctx, loop.Backoff{}, func(ctx context.Context) error {
		w, err := s.ipAddresses().Store.Watch(ctx, resource.WatchOptions{})
		if err != nil {
			return err
		}
		defer w.Close()
		wake.Set() // claims may have been deleted before
		for {
			events, err := w.Next(ctx)
			if err != nil {
				return err
			}
			if slices.ContainsFunc(events, func(e resource.Event) bool { return e.Type == resource.Deleted && s.claimInUse(ctx, e.Object) }) {
				wake.Set()
			}
		}
	})
}

// claimInUse reports whether the Service of a claim has the address, by the cache.
func (s *Services) claimInUse(ctx context.Context, claim *resource.Object) bool {
	ip, err := rest.DecodeAs[*networkingv1.IPAddress](s.ipAddresses().Kind, claim)
	if err != nil || ip.Spec.ParentRef == nil {
		return false
	}
	key := resource.Key{Namespace: ip.Spec.ParentRef.Namespace, Name: ip.Spec.ParentRef.Name}
	has, err := s.hasAddress(ctx, key, ip.Name, resource.At{Freshness: resource.Any})
	return err == nil && has
}

// hasAddress reports whether a Service exists and has an address.
func (s *Services) hasAddress(ctx context.Context, key resource.Key, address string, at resource.At) (bool, error) {
	o, err := s.services().Store.Get(ctx, key, at)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	svc, err := rest.DecodeAs[*corev1.Service](s.services().Kind, o)
	return err == nil && slices.Contains(svc.Spec.ClusterIPs, address), err
}
