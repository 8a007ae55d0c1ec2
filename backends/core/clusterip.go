package core

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/resource"
	"portico/resource/loop"
	"portico/resource/rest"
)

// claimGrace is the age from which a claim without a service is freed: a service is
// stored after its claim.
const claimGrace = time.Minute

// addresses allocates cluster IPs. A claim is an object in etcd named by the address, so
// that several core servers never allocate one address twice. A write that fails releases its
// claim; a claim that remains, because the server ended, is freed after claimGrace.
type addresses struct {
	prefix netip.Prefix
	size   uint32 // of the range; at most 2^16 of it is used
	claims resource.Store
	// services are the users of the addresses. Set before the first request.
	services *rest.Resource
}

// apiService owns the first address of the range.
const apiService = "default/kubernetes"

// claimInfo returns the resource of claims, which is stored and not served.
func claimInfo() *resource.Info {
	return &resource.Info{
		Group: "internal.portico.dev", Versions: []string{"v1"}, Resource: "clusteripclaims",
		Kind: "ClusterIPClaim", Path: "portico/clusterips",
	}
}

func newAddresses(cidr string, claims resource.Store) (*addresses, error) {
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil || !prefix.Addr().Is4() {
		return nil, fmt.Errorf("service cluster IP range %q must be an IPv4 CIDR such as 10.96.0.0/16", cidr)
	}
	prefix = prefix.Masked()
	if prefix.Bits() > 30 {
		return nil, fmt.Errorf("service cluster IP range %q is too small: it needs at least 4 addresses", cidr)
	}
	return &addresses{prefix: prefix, size: 1 << min(16, 32-prefix.Bits()), claims: claims}, nil
}

// nth returns an address of the range. The first is for default/kubernetes.
func (a *addresses) nth(n uint32) netip.Addr {
	base := a.prefix.Addr().As4()
	var out [4]byte
	binary.BigEndian.PutUint32(out[:], binary.BigEndian.Uint32(base[:])+n)
	return netip.AddrFrom4(out)
}

// allocate is kinds.Config.AllocateClusterIP.
func (a *addresses) allocate(ctx context.Context, svc, old *corev1.Service, dryRun bool) (release func(), err error) {
	if svc.Spec.Type == corev1.ServiceTypeExternalName || svc.Spec.ClusterIP == corev1.ClusterIPNone {
		return nil, nil // the address of old is freed once the service is stored
	}
	owner := svc.Namespace + "/" + svc.Name
	if svc.Spec.ClusterIP != "" {
		if old != nil && slices.Contains(old.Spec.ClusterIPs, svc.Spec.ClusterIP) {
			return nil, nil
		}
		claim, err := a.claimNamed(ctx, svc, owner, dryRun)
		return a.releaser(svc, claim), err
	}
	addr, claim, err := a.claimFree(ctx, owner, dryRun)
	if err != nil {
		return nil, err
	}
	svc.Spec.ClusterIP, svc.Spec.ClusterIPs = addr.String(), []string{addr.String()}
	return a.releaser(svc, claim), nil
}

// releaser returns the function that frees the claim of a write that failed; nil if claim is.
// The claim remains if it was renewed, or if the service is stored and uses it: the write may
// have succeeded although its answer was lost.
func (a *addresses) releaser(svc *corev1.Service, claim *resource.Object) func() {
	if claim == nil {
		return nil
	}
	key := resource.Key{Namespace: svc.Namespace, Name: svc.Name}
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if used, err := a.uses(ctx, key, claim.Name); err == nil && !used {
			_ = a.free(ctx, claim) // else freeOnce frees it
		}
	}
}

// uses reports whether the stored service has the address.
func (a *addresses) uses(ctx context.Context, key resource.Key, address string) (bool, error) {
	o, err := a.services.Store.Get(ctx, key, resource.At{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	obj, err := a.services.Decode(o)
	if err != nil {
		return false, err
	}
	return slices.Contains(obj.(*corev1.Service).Spec.ClusterIPs, address), nil
}

// claimNamed claims the address that a service names itself.
func (a *addresses) claimNamed(ctx context.Context, svc *corev1.Service, owner string, dryRun bool) (*resource.Object, error) {
	invalid := func(text string) error {
		return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Service").GroupKind(), svc.Name, field.ErrorList{
			field.Invalid(field.NewPath("spec", "clusterIPs"), []string{svc.Spec.ClusterIP}, text),
		})
	}
	addr, err := netip.ParseAddr(svc.Spec.ClusterIP)
	if err != nil || !a.prefix.Contains(addr) {
		return nil, invalid(fmt.Sprintf("failed to allocate IP %s: the provided IP (%s) is not in the valid range. The range of valid IPs is %s",
			svc.Spec.ClusterIP, svc.Spec.ClusterIP, a.prefix))
	}
	taken := invalid(fmt.Sprintf("failed to allocate IP %s: provided IP is already allocated", addr))
	if addr == a.nth(1) && owner != apiService {
		return nil, taken
	}
	if dryRun {
		return nil, nil
	}
	claim, err := a.claim(ctx, addr, owner)
	if apierrors.IsAlreadyExists(err) {
		return nil, taken
	}
	return claim, err
}

// claimFree claims a free address. It starts at an address that depends on the service, so
// that servers rarely try the same one. A dry run makes no claim.
func (a *addresses) claimFree(ctx context.Context, owner string, dryRun bool) (netip.Addr, *resource.Object, error) {
	h := fnv.New32a()
	fmt.Fprint(h, owner)
	start := h.Sum32()
	for i := range a.size {
		n := (start + i) % a.size
		if n < 2 || n == a.size-1 { // the network, default/kubernetes, broadcast
			continue
		}
		addr := a.nth(n)
		if dryRun {
			_, err := a.claims.Get(ctx, resource.Key{Name: addr.String()}, resource.At{})
			if apierrors.IsNotFound(err) {
				return addr, nil, nil
			} else if err != nil {
				return netip.Addr{}, nil, err
			}
			continue
		}
		claim, err := a.claim(ctx, addr, owner)
		if !apierrors.IsAlreadyExists(err) {
			return addr, claim, err
		}
	}
	return netip.Addr{}, nil, apierrors.NewInternalError(fmt.Errorf("failed to allocate a serviceIP: range %s is full", a.prefix))
}

// claimed is the stored form of a claim.
type claimed struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   metav1.ObjectMeta `json:"metadata"`
	Owner      string            `json:"owner"` // namespace/name of the service
}

// claim stores a claim, or renews that of the same owner. The error is AlreadyExists if the
// address has another owner.
func (a *addresses) claim(ctx context.Context, addr netip.Addr, owner string) (*resource.Object, error) {
	return a.claims.Update(ctx, resource.Key{Name: addr.String()}, func(cur *resource.Object) (resource.Mutation, error) {
		if cur != nil {
			var have claimed
			if err := json.Unmarshal(cur.Data, &have); err != nil {
				return resource.Mutation{}, fmt.Errorf("decode claim: %w", err)
			}
			if have.Owner != owner {
				return resource.Mutation{}, apierrors.NewAlreadyExists(a.claims.Info().GroupResource(), addr.String())
			}
		}
		data, err := json.Marshal(claimed{
			APIVersion: "internal.portico.dev/v1", Kind: "ClusterIPClaim", Owner: owner,
			// The uid makes every renewal a change, so that free finds a new revision.
			Metadata: metav1.ObjectMeta{Name: addr.String(), UID: uuid.NewUUID(), CreationTimestamp: metav1.Now()},
		})
		if err != nil {
			return resource.Mutation{}, fmt.Errorf("encode claim: %w", err)
		}
		o, err := resource.Parse(data)
		return resource.Mutation{Object: o}, err
	})
}

// free deletes a claim unless it has changed.
func (a *addresses) free(ctx context.Context, claim *resource.Object) error {
	_, err := a.claims.Delete(ctx, claim.Key(), func(cur *resource.Object) error {
		if cur.Revision != claim.Revision {
			return apierrors.NewConflict(a.claims.Info().GroupResource(), claim.Name, errors.New("the claim has been renewed"))
		}
		return nil
	})
	return err
}

// freeAddresses frees claims without a service that uses the address, until ctx ends.
func (c *Core) freeAddresses(ctx context.Context) error {
	return c.reconcile(ctx, "cluster IPs", new(loop.Signal), func(ctx context.Context) error {
		return c.freeOnce(ctx, time.Now().Add(-claimGrace))
	})
}

// freeOnce frees claims older than before. It lists the claims first, so that the list of
// services has every service that was stored with one of them.
func (c *Core) freeOnce(ctx context.Context, before time.Time) error {
	claims, err := c.addresses.claims.List(ctx, resource.ListOptions{})
	if err != nil {
		return fmt.Errorf("list claims: %w", err)
	}
	services := c.find("", "services")
	list, err := services.Store.List(ctx, resource.ListOptions{})
	if err != nil {
		return fmt.Errorf("list services: %w", err)
	}
	used := map[string]bool{}
	for _, o := range list.Items {
		obj, err := services.Decode(o)
		if err != nil {
			return err
		}
		for _, ip := range obj.(*corev1.Service).Spec.ClusterIPs {
			used[ip] = true
		}
	}
	for _, o := range claims.Items {
		var claim claimed
		if err := json.Unmarshal(o.Data, &claim); err != nil || used[o.Name] || claim.Metadata.CreationTimestamp.After(before) {
			continue
		}
		err := c.addresses.free(ctx, o)
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("free %s: %w", o.Name, err)
		}
	}
	return nil
}
