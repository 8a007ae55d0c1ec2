package services

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"portico/resource"
	"portico/resource/rest"
)

// Store returns a store of Services over inner that frees the claims of addresses and ports
// which an update or deletion gives up, before it returns.
func (s *Services) Store(inner resource.Store) resource.Store { return &store{inner, s} }

type store struct {
	resource.Store
	services *Services
}

func (st *store) Update(ctx context.Context, key resource.Key, mutate resource.Mutate) (*resource.Object, error) {
	var before *resource.Object
	deleted := false
	o, err := st.Store.Update(ctx, key, func(cur *resource.Object) (resource.Mutation, error) {
		m, err := mutate(cur)
		before, deleted = cur, m.Delete
		return m, err
	})
	if err == nil && before != nil && o != nil {
		after := o
		if deleted {
			after = nil
		}
		st.services.released(ctx, before, after, o.Revision)
	}
	return o, err
}

func (st *store) Delete(ctx context.Context, key resource.Key, check func(cur *resource.Object) error) (*resource.Object, error) {
	o, err := st.Store.Delete(ctx, key, check)
	if err == nil {
		st.services.released(ctx, o, nil, o.Revision)
	}
	return o, err
}

// Discard implements resource.Discarder. The claims of an object that cannot be read are freed
// by a repair.
func (st *store) Discard(ctx context.Context, key resource.Key, dryRun bool) error {
	return st.Store.(resource.Discarder).Discard(ctx, key, dryRun)
}

// released frees what the Service had before and does not have after (nil: it is deleted). The
// change has that revision: newer claims belong to a new Service of the name.
func (s *Services) released(ctx context.Context, before, after *resource.Object, revision int64) {
	had, err := rest.DecodeAs[*corev1.Service](s.services().Kind, before)
	if err != nil {
		return // it is repaired
	}
	has := &corev1.Service{}
	if after != nil {
		if has, err = rest.DecodeAs[*corev1.Service](s.services().Kind, after); err != nil {
			return
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	err = nil
	if had.Spec.Type != corev1.ServiceTypeExternalName && !isHeadless(&had.Spec) {
		for _, ip := range had.Spec.ClusterIPs {
			if slices.Contains(has.Spec.ClusterIPs, ip) {
				continue
			}
			if e := s.free(ctx, ip, func(cur *resource.Object) bool { return cur.Revision < revision && s.claims(cur, had) }); e != nil {
				err = e
			}
		}
	}
	kept := nodePorts(has)
	free := slices.DeleteFunc(nodePorts(had), func(p int) bool { return slices.Contains(kept, p) })
	if e := s.ports.release(ctx, free); e != nil {
		err = e
	}
	s.logRelease(had, err)
}

// claims reports whether a stored IPAddress is the claim of the Service.
func (s *Services) claims(o *resource.Object, svc *corev1.Service) bool {
	ip, err := rest.DecodeAs[*networkingv1.IPAddress](s.ipAddresses().Kind, o)
	return err == nil && isClaimOf(ip, keyOf(svc))
}
