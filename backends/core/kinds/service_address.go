package kinds

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"portico/backends/core/kinds/rules"
)

// clusterFamily is the family of the addresses that the server allocates.
const clusterFamily = corev1.IPv4Protocol

// isHeadless reports whether the service has no cluster IP by request.
func isHeadless(svc *corev1.Service) bool {
	return len(svc.Spec.ClusterIPs) == 1 && svc.Spec.ClusterIPs[0] == corev1.ClusterIPNone
}

// isUnmanaged reports whether the service is headless without a selector. Its endpoints are
// written by clients, which choose the families, so any are allowed.
func isUnmanaged(svc *corev1.Service) bool {
	return svc.Spec.ClusterIP == corev1.ClusterIPNone && len(svc.Spec.Selector) == 0
}

// usesClusterIPs reports whether the service has or needs cluster IPs.
func usesClusterIPs(svc *corev1.Service) bool {
	return svc.Spec.Type != corev1.ServiceTypeExternalName && svc.Spec.ClusterIP != corev1.ClusterIPNone
}

func sameClusterIPs(a, b *corev1.Service) bool {
	return slices.Equal(a.Spec.ClusterIPs, b.Spec.ClusterIPs)
}

func familyOf(ip string) corev1.IPFamily {
	if a, err := netip.ParseAddr(ip); err == nil && a.Is6() {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

func isPolicy(svc *corev1.Service, p corev1.IPFamilyPolicy) bool {
	return ptr.Deref(svc.Spec.IPFamilyPolicy, "") == p
}

// keepAllocated keeps allocated values that the body omits, so that the manifest that created a
// service can also update it.
func keepAllocated(svc, old *corev1.Service) {
	if svc.Spec.Type != corev1.ServiceTypeExternalName && old.Spec.Type != corev1.ServiceTypeExternalName {
		if svc.Spec.ClusterIP == "" {
			svc.Spec.ClusterIP = old.Spec.ClusterIP
		}
		if len(svc.Spec.ClusterIPs) == 0 {
			svc.Spec.ClusterIPs = slices.Clone(old.Spec.ClusterIPs)
		}
	}
	if needsNodePort(svc) && needsNodePort(old) {
		keepNodePorts(svc, old)
	}
	if needsHealthCheckPort(svc) && needsHealthCheckPort(old) && svc.Spec.HealthCheckNodePort == 0 {
		svc.Spec.HealthCheckNodePort = old.Spec.HealthCheckNodePort
	}
}

// keepNodePorts keeps node ports by the name of the port, except those that the body assigns to
// another port.
func keepNodePorts(svc, old *corev1.Service) {
	used := map[int32]bool{}
	for _, p := range svc.Spec.Ports {
		used[p.NodePort] = true
	}
	byName := map[string]int32{}
	for _, p := range old.Spec.Ports {
		byName[p.Name] = p.NodePort
	}
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		if kept := byName[p.Name]; p.NodePort == 0 && !used[kept] {
			p.NodePort, used[kept] = kept, true
		}
	}
}

// syncClusterIPs sets clusterIPs for clients that only know clusterIP, which is older than dual
// stack. old is nil on create.
func syncClusterIPs(svc, old *corev1.Service) {
	spec := &svc.Spec
	if old == nil {
		if spec.ClusterIP != "" && len(spec.ClusterIPs) == 0 {
			spec.ClusterIPs = []string{spec.ClusterIP}
		}
		return // clients that send clusterIPs send both
	}
	if spec.ClusterIP == old.Spec.ClusterIP || !sameClusterIPs(svc, old) {
		return // both changed or neither did
	}
	if spec.ClusterIP == "" {
		spec.ClusterIPs = nil
		return
	}
	spec.ClusterIPs = []string{spec.ClusterIP}
}

// chooseFamilies sets ipFamilyPolicy and ipFamilies if the body omits them. The policy of an
// update is the old one, and of a create SingleStack: a service changes between single and dual
// stack only by request. old is nil on create.
func chooseFamilies(svc, old *corev1.Service) {
	spec := &svc.Spec
	if spec.Type == corev1.ServiceTypeExternalName {
		return
	}
	if spec.IPFamilyPolicy == nil {
		switch {
		case old != nil && old.Spec.IPFamilyPolicy != nil:
			spec.IPFamilyPolicy = new(*old.Spec.IPFamilyPolicy)
		case isUnmanaged(svc):
			spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack)
		default:
			spec.IPFamilyPolicy = new(corev1.IPFamilyPolicySingleStack)
		}
	}
	single := isPolicy(svc, corev1.IPFamilyPolicySingleStack)
	if old != nil && single {
		dropSecondary(svc, old)
	}
	for i, ip := range spec.ClusterIPs {
		if i >= len(spec.IPFamilies) && ip != corev1.ClusterIPNone {
			spec.IPFamilies = append(spec.IPFamilies, familyOf(ip))
		}
	}
	if len(spec.IPFamilies) == 0 {
		spec.IPFamilies = []corev1.IPFamily{clusterFamily}
	}
	if len(spec.IPFamilies) == 1 && !single && isUnmanaged(svc) {
		other := corev1.IPv6Protocol
		if spec.IPFamilies[0] == corev1.IPv6Protocol {
			other = corev1.IPv4Protocol
		}
		spec.IPFamilies = append(spec.IPFamilies, other)
	}
}

// dropSecondary removes the second address and family of a service that changes to SingleStack,
// if the lists were sent unchanged.
func dropSecondary(svc, old *corev1.Service) {
	if sameClusterIPs(svc, old) && len(svc.Spec.ClusterIPs) > 1 {
		svc.Spec.ClusterIPs = svc.Spec.ClusterIPs[:1:1]
	}
	if slices.Equal(svc.Spec.IPFamilies, old.Spec.IPFamilies) && len(svc.Spec.IPFamilies) > 1 {
		svc.Spec.IPFamilies = svc.Spec.IPFamilies[:1:1]
	}
}

// validateFamilies validates the families against the policy and that of the cluster. old is nil
// on create.
func validateFamilies(svc, old *corev1.Service) field.ErrorList {
	spec := &svc.Spec
	if spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	var errs field.ErrorList
	path := field.NewPath("spec", "ipFamilyPolicy")
	refuse := func(bad bool, message string) {
		if bad {
			errs = append(errs, field.Invalid(path, spec.IPFamilyPolicy, message))
		}
	}
	single := isPolicy(svc, corev1.IPFamilyPolicySingleStack)
	if old != nil && !single && old.Spec.Type != corev1.ServiceTypeExternalName {
		refuse(len(spec.ClusterIPs) == 1 && len(old.Spec.ClusterIPs) == 2 && spec.ClusterIPs[0] == old.Spec.ClusterIPs[0],
			"must be 'SingleStack' to release the secondary cluster IP")
		refuse(len(spec.IPFamilies) == 1 && len(old.Spec.IPFamilies) == 2 && spec.IPFamilies[0] == old.Spec.IPFamilies[0],
			"must be 'SingleStack' to release the secondary IP family")
	}
	refuse(single && len(spec.ClusterIPs) == 2,
		"must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs are specified")
	refuse(single && len(spec.IPFamilies) == 2,
		"must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified")
	if isUnmanaged(svc) {
		return errs
	}
	refuse(isPolicy(svc, corev1.IPFamilyPolicyRequireDualStack), "this cluster is not configured for dual-stack services")
	for i, family := range spec.IPFamilies {
		if family != clusterFamily {
			errs = append(errs, field.Invalid(field.NewPath("spec", "ipFamilies").Index(i), family, "not configured on this cluster"))
		}
	}
	return errs
}

// validateClusterIPs validates the form of the address fields and that they agree with each
// other. validateServiceType requires that those of an ExternalName service are empty.
func validateClusterIPs(svc *corev1.Service) field.ErrorList {
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	spec, ips := &svc.Spec, field.NewPath("spec", "clusterIPs")
	var errs field.ErrorList
	switch {
	case spec.ClusterIP == "" && len(spec.ClusterIPs) > 0:
		errs = append(errs, field.Invalid(ips, spec.ClusterIPs, "must be empty when `clusterIP` is not specified"))
	case spec.ClusterIP != "" && len(spec.ClusterIPs) == 0:
		errs = append(errs, field.Required(ips, ""))
	case spec.ClusterIP != "" && spec.ClusterIPs[0] != spec.ClusterIP:
		errs = append(errs, field.Invalid(ips, spec.ClusterIPs, "first value must match `clusterIP`"))
	}
	families := field.NewPath("spec", "ipFamilies")
	for i, family := range spec.IPFamilies {
		errs = append(errs, rules.Supported(family, families.Index(i), corev1.IPv4Protocol, corev1.IPv6Protocol)...)
		if slices.Contains(spec.IPFamilies[:i], family) {
			errs = append(errs, field.Duplicate(families.Index(i), family))
		}
	}
	if spec.IPFamilyPolicy != nil {
		errs = append(errs, rules.Supported(*spec.IPFamilyPolicy, field.NewPath("spec", "ipFamilyPolicy"),
			corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack, corev1.IPFamilyPolicySingleStack)...)
	}
	return append(errs, validateClusterIPList(svc, ips)...)
}

func validateClusterIPList(svc *corev1.Service, path *field.Path) field.ErrorList {
	spec := &svc.Spec
	var errs field.ErrorList
	malformed := false
	for i, ip := range spec.ClusterIPs {
		if i == 0 && ip == corev1.ClusterIPNone {
			if len(spec.ClusterIPs) > 1 {
				malformed = true
				errs = append(errs, field.Invalid(path, spec.ClusterIPs, "'None' must be the first and only value"))
			}
			continue
		}
		bad := validateLegacyIP(ip, path.Index(i))
		malformed = malformed || len(bad) > 0
		errs = append(errs, bad...)
	}
	if len(spec.ClusterIPs) > 2 {
		errs = append(errs, field.Invalid(path, spec.ClusterIPs, "may only hold up to 2 values"))
	}
	if malformed || isHeadless(svc) {
		return errs // without addresses to compare families with
	}
	if len(spec.ClusterIPs) > 1 && familyOf(spec.ClusterIPs[0]) == familyOf(spec.ClusterIPs[1]) {
		errs = append(errs, field.Invalid(path, spec.ClusterIPs, "may specify no more than one IP for each IP family"))
	}
	for i := range min(len(spec.ClusterIPs), len(spec.IPFamilies)) {
		if want := spec.IPFamilies[i]; familyOf(spec.ClusterIPs[i]) != want {
			errs = append(errs, field.Invalid(path.Index(i), spec.ClusterIPs[i],
				fmt.Sprintf("expected an %s value as indicated by `ipFamilies[%v]`", want, i)))
		}
	}
	return errs
}
