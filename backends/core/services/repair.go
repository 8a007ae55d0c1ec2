package services

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
	"portico/resource/rest"
)

const (
	// claimGrace is the age from which a claim that no Service uses is freed: a Service is
	// stored after its claims, within the longest time of a request.
	claimGrace = time.Minute
	// leakRepairs is how many repairs find a port without a user before the last one frees it.
	leakRepairs = 3
)

// Repair creates the default ServiceCIDR if it is missing, creates missing claims, frees those
// that nothing uses and reports what it finds. The first success lets allocations begin. It is
// called from one goroutine, in every server once and then in one at a time.
func (s *Services) Repair(ctx context.Context) error {
	if err := s.ensureCIDR(ctx); err != nil {
		return fmt.Errorf("create default ServiceCIDR: %w", err)
	}
	if err := s.migrate(ctx); err != nil {
		return err
	}
	if err := s.repairAddresses(ctx); err != nil {
		s.metrics.repairFailures.Inc()
		return err
	}
	// A port is freed by the fourth repair that finds no user, so repairs that Watch wakes leave ports.
	if time.Since(s.portsRepaired) >= claimGrace/2 {
		if err := s.repairPorts(ctx); err != nil {
			s.metrics.portRepairFailures.Inc()
			return err
		}
		s.portsRepaired = time.Now()
	}
	select {
	case <-s.ready:
	default:
		close(s.ready)
	}
	return nil
}

// migrate replaces the claims of earlier versions, which were no API objects, by IPAddresses.
func (s *Services) migrate(ctx context.Context) error {
	old := s.cfg.Store(&resource.Info{
		Group: "internal.portico.dev", Versions: []string{"v1"}, Resource: "clusteripclaims", Kind: "ClusterIPClaim", Path: "portico/clusterips",
	})
	list, err := old.List(ctx, resource.ListOptions{})
	if err != nil {
		return fmt.Errorf("list claims of an earlier version: %w", err)
	}
	for _, o := range list.Items {
		var claim struct{ Owner string } // namespace/name of the Service
		addr, err := netip.ParseAddr(o.Name)
		if err == nil {
			err = json.Unmarshal(o.Data, &claim)
		}
		if err == nil {
			namespace, name, _ := strings.Cut(claim.Owner, "/")
			if _, err := s.claim(ctx, addr, resource.Key{Namespace: namespace, Name: name}); err != nil && !apierrors.IsAlreadyExists(err) {
				return err
			}
		}
		if _, err := old.Delete(ctx, o.Key(), nil); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// repairAddresses lists the claims before the Services, so that it has every Service that was
// stored with one of them.
func (s *Services) repairAddresses(ctx context.Context) error {
	claims, err := rest.ListObjects[*networkingv1.IPAddress](ctx, s.ipAddresses(), resource.ListOptions{})
	if err != nil {
		return err
	}
	services, err := rest.ListObjects[*corev1.Service](ctx, s.services(), resource.ListOptions{})
	if err != nil {
		return err
	}
	ranges, err := s.knownRanges(ctx)
	if err != nil {
		return err
	}
	r := &addressRepair{s: s, ranges: ranges, claims: map[string]*networkingv1.IPAddress{}, users: map[string][]*corev1.Service{}}
	for _, ip := range claims {
		r.claims[ip.Name] = ip
	}
	for _, svc := range services {
		r.byKey = append(r.byKey, svc)
		if svc.Spec.Type == corev1.ServiceTypeExternalName || isHeadless(&svc.Spec) {
			continue
		}
		for _, ip := range svc.Spec.ClusterIPs {
			r.users[ip] = append(r.users[ip], svc)
		}
	}
	for ip, users := range r.users {
		if err := r.used(ctx, ip, users); err != nil {
			return err
		}
	}
	for _, ip := range claims {
		if ip.Labels[networkingv1.LabelManagedBy] == managedBy && len(r.users[ip.Name]) == 0 {
			if err := r.unused(ctx, ip); err != nil {
				return err
			}
		}
	}
	return nil
}

// addressRepair is one repair of the claims on addresses.
type addressRepair struct {
	s      *Services
	ranges []ipRange
	claims map[string]*networkingv1.IPAddress
	users  map[string][]*corev1.Service // by address
	byKey  []*corev1.Service
}

// report counts a finding and stores it as an Event of each of the Services.
func (r *addressRepair) report(ctx context.Context, kind string, users []*corev1.Service, reason, format string, args ...any) {
	r.s.metrics.addressErrors.WithLabelValues(kind).Inc()
	for _, svc := range users {
		r.s.event(ctx, referenceTo(svc), reason, fmt.Sprintf(format, args...))
	}
}

// used repairs the claim on an address that Services have.
func (r *addressRepair) used(ctx context.Context, ip string, users []*corev1.Service) error {
	addr, err := netip.ParseAddr(ip)
	if err != nil {
		r.report(ctx, "invalid", users, "ClusterIPNotValid", "Cluster IP %s is not a valid IP; please recreate Service", ip)
		return nil
	}
	addr = addr.Unmap()
	family := familyOf(addr)
	if !slices.ContainsFunc(r.ranges, func(x ipRange) bool { return x.has(addr) }) {
		r.report(ctx, "outOfRange", users, "ClusterIPOutOfRange",
			"Cluster IP [%v]: %s is not within any configured Service CIDR; please recreate service", family, ip)
		return nil
	}
	claim := r.claims[addr.String()]
	owner := slices.IndexFunc(users, func(svc *corev1.Service) bool { return claim != nil && isClaimOf(claim, keyOf(svc)) })
	if len(users) > 1 {
		others := slices.Clone(users)
		others = slices.Delete(others, max(owner, 0), max(owner, 0)+1)
		r.report(ctx, "duplicate", others, "ClusterIPAlreadyAllocated",
			"Cluster IP [%v]:%s was assigned to multiple services; please recreate service", family, ip)
	}
	labeled := claim != nil && claim.Labels[networkingv1.LabelManagedBy] == managedBy && claim.Labels[networkingv1.LabelIPAddressFamily] == string(family)
	if owner >= 0 && labeled {
		return nil
	}
	user := users[max(owner, 0)]
	if claim != nil {
		if err := r.free(ctx, claim); err != nil {
			return err
		}
	}
	if claimed, err := r.claim(ctx, ip, addr, keyOf(user)); err != nil || !claimed {
		return err
	}
	if claim == nil {
		r.report(ctx, "repair", users[:1], "ClusterIPNotAllocated", "Cluster IP [%v]: %s is not allocated; repairing", family, ip)
	} else if owner < 0 {
		r.report(ctx, "repair", users[:1], "ClusterIPNotAllocated",
			"the ClusterIP [%v]: %s for Service %s/%s has a wrong reference; repairing", family, ip, user.Namespace, user.Name)
	}
	return nil
}

// claim claims an address, ip as the Service writes it, and reports whether the Service has the
// claim. A Service that has given the address up since the list freed its claim before this one
// was made, so this one is freed here.
func (r *addressRepair) claim(ctx context.Context, ip string, addr netip.Addr, svc resource.Key) (claimed bool, err error) {
	made, err := r.s.claim(ctx, addr, svc)
	if apierrors.IsAlreadyExists(err) { // it has been claimed since the list
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("claim %s: %w", ip, err)
	}
	has, err := r.s.hasAddress(ctx, svc, ip, resource.At{})
	if err != nil {
		return false, fmt.Errorf("claim %s: read Service %s: %w", ip, svc, err)
	}
	if has {
		return true, nil
	}
	return false, r.s.free(ctx, made.Name, func(cur *resource.Object) bool { return cur.Revision == made.Revision })
}

// unused frees a claim on an address that no Service has, once its Service would be stored.
func (r *addressRepair) unused(ctx context.Context, ip *networkingv1.IPAddress) error {
	if time.Since(ip.CreationTimestamp.Time) <= claimGrace {
		return nil
	}
	about := &corev1.ObjectReference{APIVersion: "networking.k8s.io/v1", Kind: "IPAddress", Name: ip.Name, UID: ip.UID}
	p, reason := ip.Spec.ParentRef, "IPAddressNotAllocated"
	var message string
	switch {
	case p == nil || p.Group != "" || p.Resource != "services":
		message = fmt.Sprintf("IPAddress %s appears to have been modified, not referencing a Service %v: cleaning up", ip.Name, p)
	case slices.ContainsFunc(r.byKey, func(svc *corev1.Service) bool { return isClaimOf(ip, keyOf(svc)) }):
		reason = "IPAddressWrongReference"
		message = fmt.Sprintf("IPAddress: %s for Service %s/%s has a wrong reference; cleaning up", ip.Name, p.Namespace, p.Name)
	default:
		message = fmt.Sprintf("IPAddress: %s for Service %s/%s appears to have leaked: cleaning up", ip.Name, p.Namespace, p.Name)
	}
	r.s.metrics.addressErrors.WithLabelValues("leak").Inc()
	r.s.event(ctx, about, reason, message)
	return r.free(ctx, ip)
}

// free frees a claim unless it has changed.
func (r *addressRepair) free(ctx context.Context, claim *networkingv1.IPAddress) error {
	return r.s.free(ctx, claim.Name, func(cur *resource.Object) bool { return fmt.Sprint(cur.Revision) == claim.ResourceVersion })
}

// repairPorts rebuilds the claims on ports. They are read before the Services and are not
// stored if they changed in the meantime: the repair is repeated.
func (s *Services) repairPorts(ctx context.Context) error {
	for range 5 {
		before, err := s.ports.store.Get(ctx, portsKey, resource.At{})
		if apierrors.IsNotFound(err) {
			before, err = nil, nil
		}
		if err != nil {
			return fmt.Errorf("read claims of node ports: %w", err)
		}
		services, err := rest.ListObjects[*corev1.Service](ctx, s.services(), resource.ListOptions{})
		if err != nil {
			return err
		}
		stored, err := s.ports.load(before)
		if err != nil {
			return err
		}
		findings := &portFindings{leaks: map[int]int{}}
		rebuilt := s.rebuildPorts(stored, services, findings)
		same := func(cur *resource.Object) bool {
			return cur == nil && before == nil || cur != nil && before != nil && cur.Revision == before.Revision
		}
		changed := false
		_, err = s.ports.store.Update(ctx, portsKey, func(cur *resource.Object) (resource.Mutation, error) {
			if changed = !same(cur); changed {
				return resource.Mutation{}, apierrors.NewConflict(s.ports.kind.GroupResource(), portsKey.Name, errors.New("node ports were claimed during the repair"))
			}
			return s.ports.mutation(rebuilt)
		})
		if changed {
			continue
		}
		if err != nil {
			return fmt.Errorf("store claims of node ports: %w", err)
		}
		s.leaks = findings.leaks
		s.metrics.portsInUse.Store(int64(len(rebuilt.all())))
		findings.report(ctx, s)
		return nil
	}
	return errors.New("node ports were claimed during every repair")
}

// portFindings are what a repair of ports has found.
type portFindings struct {
	leaks map[int]int // as Services.leaks
	found []portFinding
}

type portFinding struct {
	kind, reason, message string
	svc                   *corev1.Service // nil: a leak
}

// rebuildPorts returns the claims that there should be. A port without a user remains for a
// few repairs: its Service may be about to be stored.
func (s *Services) rebuildPorts(stored bitmap, services []*corev1.Service, f *portFindings) bitmap {
	rebuilt := newBitmap(s.ports.PortRange)
	for _, svc := range services {
		for _, port := range nodePorts(svc) {
			switch {
			case !rebuilt.Contains(port):
				f.found = append(f.found, portFinding{"outOfRange", "PortOutOfRange",
					fmt.Sprintf("Port %d is not within the port range %s; please recreate service", port, rebuilt.PortRange.String()), svc})
			case rebuilt.has(port):
				f.found = append(f.found, portFinding{"duplicate", "PortAlreadyAllocated",
					fmt.Sprintf("Port %d was assigned to multiple services; please recreate service", port), svc})
			default:
				rebuilt.set(port, 1)
				if !stored.has(port) {
					f.found = append(f.found, portFinding{"repair", "PortNotAllocated", fmt.Sprintf("Port %d is not allocated; repairing", port), svc})
				}
			}
		}
	}
	for _, port := range stored.all() {
		if !rebuilt.Contains(port) || rebuilt.has(port) {
			continue
		}
		left, known := s.leaks[port]
		if !known {
			left = leakRepairs
		}
		if left == 0 {
			f.found = append(f.found, portFinding{kind: "leak", message: fmt.Sprintf("the node port %d appears to have leaked: cleaning up", port)})
			continue
		}
		f.leaks[port] = left - 1
		rebuilt.set(port, 1)
	}
	return rebuilt
}

func (f *portFindings) report(ctx context.Context, s *Services) {
	for _, x := range f.found {
		s.metrics.portErrors.WithLabelValues(x.kind).Inc()
		if x.svc == nil {
			s.log.Warn(x.message)
			continue
		}
		s.event(ctx, referenceTo(x.svc), x.reason, x.message)
	}
}
