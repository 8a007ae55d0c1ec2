package services

import (
	"context"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
	"portico/resource/loop"
	"portico/resource/rest"
)

// Watch sets wake until ctx ends when a repair is needed: the IPAddress of a Service is deleted, or
// a Service is written with an address that has none, as by a server that stores no IPAddresses.
func (s *Services) Watch(ctx context.Context, wake *loop.Signal) error {
	return loop.Together(ctx,
		func(ctx context.Context) error { return watch(ctx, s.ipAddresses(), wake, s.lostClaim) },
		func(ctx context.Context) error { return watch(ctx, s.services(), wake, s.unclaimed) },
	)
}

// watch sets wake at every event that needs a repair, and at the start, because it misses earlier
// events.
func watch(ctx context.Context, r *rest.Resource, wake *loop.Signal, needsRepair func(context.Context, resource.Event) bool) error {
	return loop.Retry(ctx, loop.Backoff{}, func(ctx context.Context) error {
		w, err := r.Store.Watch(ctx, resource.WatchOptions{})
		if err != nil {
			return err
		}
		defer w.Close()
		wake.Set()
		for {
			events, err := w.Next(ctx)
			if err != nil {
				return err
			}
			if slices.ContainsFunc(events, func(e resource.Event) bool { return needsRepair(ctx, e) }) {
				wake.Set()
			}
		}
	})
}

// lostClaim reports whether the event deletes the claim of a Service that still has the address,
// according to the cache.
func (s *Services) lostClaim(ctx context.Context, e resource.Event) bool {
	if e.Type != resource.Deleted {
		return false
	}
	ip, err := rest.DecodeAs[*networkingv1.IPAddress](s.ipAddresses().Kind, e.Object)
	if err != nil || ip.Spec.ParentRef == nil {
		return false
	}
	key := resource.Key{Namespace: ip.Spec.ParentRef.Namespace, Name: ip.Spec.ParentRef.Name}
	has, err := s.hasAddress(ctx, key, ip.Name, resource.At{Freshness: resource.Any})
	return err == nil && has
}

// unclaimed reports whether the event writes a Service with an address of a known range that has no
// claim. A claim that the cache lacks is looked up in etcd.
func (s *Services) unclaimed(ctx context.Context, e resource.Event) bool {
	if e.Type == resource.Deleted {
		return false
	}
	svc, err := rest.DecodeAs[*corev1.Service](s.services().Kind, e.Object)
	if err != nil || svc.Spec.Type == corev1.ServiceTypeExternalName || isHeadless(&svc.Spec) {
		return false
	}
	return slices.ContainsFunc(svc.Spec.ClusterIPs, func(ip string) bool {
		addr, err := netip.ParseAddr(ip)
		if err != nil || s.claimed(ctx, addr, resource.At{Freshness: resource.Any}) {
			return false
		}
		ranges, err := s.knownRanges(ctx) // of the cache
		if err != nil || !slices.ContainsFunc(ranges, func(r ipRange) bool { return r.has(addr.Unmap()) }) {
			return false
		}
		if s.claimed(ctx, addr, resource.At{}) {
			return false
		}
		has, err := s.hasAddress(ctx, keyOf(svc), ip, resource.At{})
		return err == nil && has
	})
}

// claimed reports whether an address has a claim. It returns true if the claim cannot be read.
func (s *Services) claimed(ctx context.Context, addr netip.Addr, at resource.At) bool {
	_, err := s.ipAddresses().Store.Get(ctx, resource.Key{Name: addr.Unmap().String()}, at)
	return !apierrors.IsNotFound(err)
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
