package services

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/resource"
	"portico/resource/rest"
)

// managedBy is the value of the label of IPAddresses that claim addresses of Services.
const managedBy = "ipallocator.k8s.io"

var (
	errFull      = errors.New("range is full")
	errAllocated = errors.New("provided IP is already allocated")
	errNoRange   = errors.New("the provided network does not match the current range")
)

func (s *Services) ipAddresses() *rest.Resource {
	return s.cfg.Resource(networkingv1.GroupName, "ipaddresses")
}

// newIPAddress returns the claim of a Service on an address.
func newIPAddress(addr netip.Addr, svc resource.Key) *networkingv1.IPAddress {
	return &networkingv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Name: addr.String(), Labels: map[string]string{
			networkingv1.LabelIPAddressFamily: string(familyOf(addr)), networkingv1.LabelManagedBy: managedBy,
		}},
		Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{Resource: "services", Namespace: svc.Namespace, Name: svc.Name}},
	}
}

// isClaimOf reports whether an IPAddress is the claim of a Service.
func isClaimOf(ip *networkingv1.IPAddress, svc resource.Key) bool {
	p := ip.Spec.ParentRef
	return p != nil && p.Group == "" && p.Resource == "services" && p.Namespace == svc.Namespace && p.Name == svc.Name
}

// claim stores the claim. The error is AlreadyExists if the address has one.
func (s *Services) claim(ctx context.Context, addr netip.Addr, svc resource.Key) (*resource.Object, error) {
	ip, err := rest.CreateObject(ctx, s.ipAddresses(), newIPAddress(addr, svc))
	if err != nil {
		return nil, err
	}
	rev, err := strconv.ParseInt(ip.ResourceVersion, 10, 64)
	return &resource.Object{Header: resource.Header{Name: ip.Name, Revision: rev}}, err
}

// free deletes a claim if ok agrees with its current state.
func (s *Services) free(ctx context.Context, name string, ok func(cur *resource.Object) bool) error {
	r := s.ipAddresses()
	_, err := r.Store.Delete(ctx, resource.Key{Name: name}, func(cur *resource.Object) error {
		if !ok(cur) {
			return apierrors.NewConflict(r.GroupResource(), name, errors.New("the claim has changed"))
		}
		return nil
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// claimAddresses claims the addresses of the families with the indexes, and sets those that the
// service does not name.
func (s *Services) claimAddresses(ctx context.Context, svc *corev1.Service, indexes []int, dryRun bool) (made []*resource.Object, err error) {
	for _, i := range indexes {
		for len(svc.Spec.ClusterIPs) <= i {
			svc.Spec.ClusterIPs = append(svc.Spec.ClusterIPs, "")
		}
		var claim *resource.Object
		if svc.Spec.ClusterIPs[i] != "" {
			claim, err = s.claimNamed(ctx, svc, svc.Spec.ClusterIPs[i], dryRun)
		} else {
			claim, err = s.claimFree(ctx, svc, i, dryRun)
		}
		if claim != nil {
			made = append(made, claim)
		}
		if err != nil {
			return made, err
		}
	}
	if len(svc.Spec.ClusterIPs) > 0 {
		svc.Spec.ClusterIP = svc.Spec.ClusterIPs[0]
	}
	return made, nil
}

// claimNamed claims an address that the service names.
func (s *Services) claimNamed(ctx context.Context, svc *corev1.Service, ip string, dryRun bool) (*resource.Object, error) {
	key := keyOf(svc)
	invalid := func(cidr string, err error) error {
		s.metrics.addressFailed(cidr, "static")
		return apierrors.NewInvalid(serviceKind, svc.Name, field.ErrorList{
			field.Invalid(field.NewPath("spec", "clusterIPs"), svc.Spec.ClusterIPs, fmt.Sprintf("failed to allocate IP %s: %v", ip, err)),
		})
	}
	addr, err := netip.ParseAddr(ip)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("failed to parse service IP %q", ip))
	}
	addr = addr.Unmap()
	ranges, err := s.usableRanges(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(ranges, func(r ipRange) bool { return r.has(addr) })
	if i < 0 {
		return nil, invalid("", errNoRange)
	}
	cidr := ranges[i].String()
	if s.reserved(addr, key) {
		return nil, invalid(cidr, errAllocated)
	}
	if dryRun {
		return nil, nil
	}
	start := time.Now()
	claim, err := s.claim(ctx, addr, key)
	if apierrors.IsAlreadyExists(err) {
		return nil, invalid(cidr, errAllocated)
	}
	if err != nil {
		return nil, invalid(cidr, err)
	}
	s.metrics.addressAllocated(cidr, "static", start)
	return claim, nil
}

var serviceKind = corev1.SchemeGroupVersion.WithKind("Service").GroupKind()

// reserved reports whether the address is that of Service default/kubernetes, and svc another.
func (s *Services) reserved(addr netip.Addr, svc resource.Key) bool {
	return svc != apiService && addr == s.ranges[0].nth(1)
}

// claimFree claims a free address of family i of the service, and sets it. A dry run makes no
// claim.
func (s *Services) claimFree(ctx context.Context, svc *corev1.Service, i int, dryRun bool) (*resource.Object, error) {
	ranges, err := s.usableRanges(ctx)
	if err != nil {
		return nil, err
	}
	ranges = slices.DeleteFunc(ranges, func(r ipRange) bool { return r.family() != svc.Spec.IPFamilies[i] })
	start := time.Now()
	// The cache may show a range as full that no longer is.
	for _, taken := range []func(context.Context) (func(name string) bool, error){s.takenInCache, s.takenNow} {
		has, err := taken(ctx)
		if err != nil {
			return nil, err
		}
		for _, r := range ranges {
			found, claim, err := s.claimIn(ctx, r, keyOf(svc), has, dryRun)
			if err != nil {
				s.metrics.addressFailed(r.String(), "dynamic")
				return claim, apierrors.NewInvalid(serviceKind, svc.Name, field.ErrorList{
					field.Invalid(field.NewPath("spec", "clusterIPs"), svc.Spec.ClusterIPs, fmt.Sprintf("failed to allocate IP: %v", err)),
				})
			}
			if found.IsValid() {
				s.metrics.addressAllocated(r.String(), "dynamic", start)
				svc.Spec.ClusterIPs[i] = found.String()
				return claim, nil
			}
		}
	}
	for _, r := range ranges {
		s.metrics.addressFailed(r.String(), "dynamic")
	}
	return nil, apierrors.NewInternalError(fmt.Errorf("failed to allocate a serviceIP for Service %q: %w", svc.Name, errFull))
}

func (s *Services) takenInCache(ctx context.Context) (func(string) bool, error) {
	return func(name string) bool {
		_, err := s.ipAddresses().Store.Get(ctx, resource.Key{Name: name}, resource.At{Freshness: resource.Any})
		return err == nil
	}, nil
}

func (s *Services) takenNow(ctx context.Context) (func(string) bool, error) {
	list, err := s.ipAddresses().Store.List(ctx, resource.ListOptions{})
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, o := range list.Items {
		names[o.Name] = true
	}
	return func(name string) bool { return names[name] }, nil
}

// claimIn claims an address of a range that is not taken. found is not valid if there is none.
func (s *Services) claimIn(ctx context.Context, r ipRange, key resource.Key, taken func(string) bool, dryRun bool) (found netip.Addr, claim *resource.Object, err error) {
	r.each(func(addr netip.Addr) bool {
		if err = ctx.Err(); err != nil {
			return false
		}
		if s.reserved(addr, key) || taken(addr.String()) {
			return true
		}
		if !dryRun {
			claim, err = s.claim(ctx, addr, key)
			if apierrors.IsAlreadyExists(err) {
				err = nil
				return true
			}
		}
		found = addr
		return false
	})
	return found, claim, err
}

// usableRanges returns the ranges of the ServiceCIDRs that give addresses, the default one first.
func (s *Services) usableRanges(ctx context.Context) ([]ipRange, error) {
	cidrs, err := s.serviceCIDRs(ctx)
	if err != nil {
		return nil, err
	}
	var out []ipRange
	for _, c := range cidrs {
		ready := meta.FindStatusCondition(c.Status.Conditions, networkingv1.ServiceCIDRConditionReady)
		if c.DeletionTimestamp.IsZero() && (ready == nil || ready.Status == metav1.ConditionTrue) {
			out = append(out, rangesOf(c)...)
		}
	}
	return out, nil
}

// knownRanges returns the ranges of all ServiceCIDRs, including the ones that are not ready or are
// being deleted.
func (s *Services) knownRanges(ctx context.Context) (out []ipRange, err error) {
	cidrs, err := s.serviceCIDRs(ctx)
	for _, c := range cidrs {
		out = append(out, rangesOf(c)...)
	}
	return out, err
}

// rangesOf returns the ranges of a ServiceCIDR; one that is not supported gives none.
func rangesOf(c *networkingv1.ServiceCIDR) (out []ipRange) {
	for _, cidr := range c.Spec.CIDRs {
		if r, err := parseRange(cidr); err == nil {
			out = append(out, r)
		}
	}
	return out
}

// serviceCIDRs returns the ServiceCIDRs, the default one first, the others by name.
func (s *Services) serviceCIDRs(ctx context.Context) ([]*networkingv1.ServiceCIDR, error) {
	out, err := rest.ListObjects[*networkingv1.ServiceCIDR](ctx, s.cfg.Resource(networkingv1.GroupName, "servicecidrs"), resource.ListOptions{At: resource.At{Freshness: resource.Any}})
	slices.SortStableFunc(out, func(a, b *networkingv1.ServiceCIDR) int {
		rank := func(c *networkingv1.ServiceCIDR) int {
			if c.Name == defaultCIDR {
				return 0
			}
			return 1
		}
		return cmp.Compare(rank(a), rank(b))
	})
	return out, err
}

// ClaimAPIService claims the first address for Service default/kubernetes and returns it.
func (s *Services) ClaimAPIService(ctx context.Context) (string, error) {
	addr := s.ranges[0].nth(1)
	_, err := s.claim(ctx, addr, apiService)
	if apierrors.IsAlreadyExists(err) {
		err = nil // an earlier attempt has claimed it; other Services cannot
	}
	return addr.String(), err
}
