package kinds

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/utils/ptr"
)

// isHeadless reports whether the service has no cluster IP by request.
func isHeadless(svc *corev1.Service) bool {
	return len(svc.Spec.ClusterIPs) == 1 && svc.Spec.ClusterIPs[0] == corev1.ClusterIPNone
}

// isUnmanaged reports whether the service is headless without a selector. Its endpoints are
// written by clients, which choose the families, so any are allowed.
func isUnmanaged(svc *corev1.Service) bool {
	return svc.Spec.ClusterIP == corev1.ClusterIPNone && len(svc.Spec.Selector) == 0
}

func sameClusterIPs(a, b *corev1.Service) bool {
	return slices.Equal(a.Spec.ClusterIPs, b.Spec.ClusterIPs)
}

func sameFamilies(a, b *corev1.Service) bool {
	return slices.Equal(a.Spec.IPFamilies, b.Spec.IPFamilies)
}

func familyOf(ip string) corev1.IPFamily {
	if a, err := netip.ParseAddr(ip); err == nil && a.Is6() && !a.Is4In6() {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

func otherFamily(f corev1.IPFamily) corev1.IPFamily {
	if f == corev1.IPv6Protocol {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
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
// another port. Ports of different protocols may have one number.
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
		if p := &svc.Spec.Ports[i]; p.NodePort == 0 && !used[byName[p.Name]] {
			p.NodePort = byName[p.Name]
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
	if spec.ClusterIP == old.Spec.ClusterIP && len(spec.ClusterIPs) == 0 {
		spec.ClusterIPs = slices.Clone(old.Spec.ClusterIPs)
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

// chooseFamilies completes ipFamilyPolicy, ipFamilies and clusterIPs and validates them against
// the families of the cluster, the primary one first. A service changes between single and dual
// stack only by request. old is nil on create.
func chooseFamilies(svc, old *corev1.Service, cluster []corev1.IPFamily) field.ErrorList {
	spec := &svc.Spec
	if spec.Type == corev1.ServiceTypeExternalName || keepsPreferredStack(svc, old) {
		return nil
	}
	choosePolicy(svc, old)
	if errs := validateAddresses(svc, old); len(errs) > 0 {
		return errs
	}
	errs := chooseStack(svc, old)
	for i, ip := range spec.ClusterIPs {
		if i < len(spec.IPFamilies) || ip == corev1.ClusterIPNone {
			continue
		}
		family := familyOf(ip)
		if !slices.Contains(cluster, family) {
			errs = append(errs, field.Invalid(field.NewPath("spec", "clusterIPs").Index(i), spec.ClusterIPs, fmt.Sprintf("%s is not configured on this cluster", family)))
			continue
		}
		spec.IPFamilies = append(spec.IPFamilies, family)
	}
	if len(errs) > 0 {
		return errs
	}
	if !isUnmanaged(svc) {
		if errs := validateFamilies(svc, cluster); len(errs) > 0 {
			return errs
		}
	}
	if len(spec.IPFamilies) == 0 {
		spec.IPFamilies = []corev1.IPFamily{cluster[0]}
	}
	if len(spec.IPFamilies) == 1 && !isPolicy(svc, corev1.IPFamilyPolicySingleStack) && (isUnmanaged(svc) || len(cluster) == 2) {
		spec.IPFamilies = append(spec.IPFamilies, otherFamily(spec.IPFamilies[0]))
	}
	return nil
}

// keepsPreferredStack reports whether an update keeps the addresses, families and type of a
// service that prefers dual stack. It stays as it is if the families of the cluster change.
func keepsPreferredStack(svc, old *corev1.Service) bool {
	prefer := corev1.IPFamilyPolicyPreferDualStack
	return old != nil && svc.Spec.Type == old.Spec.Type && isPolicy(svc, prefer) && ptr.Deref(old.Spec.IPFamilyPolicy, prefer) == prefer &&
		sameClusterIPs(svc, old) && sameFamilies(svc, old)
}

func choosePolicy(svc, old *corev1.Service) {
	policy := corev1.IPFamilyPolicySingleStack
	switch {
	case svc.Spec.IPFamilyPolicy != nil:
		return
	case old != nil && old.Spec.IPFamilyPolicy != nil:
		policy = *old.Spec.IPFamilyPolicy
	case isUnmanaged(svc):
		policy = corev1.IPFamilyPolicyRequireDualStack
	}
	svc.Spec.IPFamilyPolicy = &policy
}

// chooseStack removes the second address and family of a service that changes to SingleStack, if
// the lists were sent unchanged, and validates the policy against the lists.
func chooseStack(svc, old *corev1.Service) field.ErrorList {
	spec := &svc.Spec
	var errs field.ErrorList
	refuse := func(bad bool, message string) {
		if bad {
			errs = append(errs, field.Invalid(field.NewPath("spec", "ipFamilyPolicy"), spec.IPFamilyPolicy, message))
		}
	}
	if !isPolicy(svc, corev1.IPFamilyPolicySingleStack) {
		reduced := func(now, was int) bool { return now > 0 && now < was }
		if old != nil {
			refuse(reduced(len(spec.ClusterIPs), len(old.Spec.ClusterIPs)), "must be 'SingleStack' to release the secondary cluster IP")
			refuse(reduced(len(spec.IPFamilies), len(old.Spec.IPFamilies)), "must be 'SingleStack' to release the secondary IP family")
		}
		return errs
	}
	if old != nil {
		if sameClusterIPs(svc, old) && len(spec.ClusterIPs) > 1 {
			spec.ClusterIPs = spec.ClusterIPs[:1:1]
		}
		if sameFamilies(svc, old) && len(spec.IPFamilies) > 1 {
			spec.IPFamilies = spec.IPFamilies[:1:1]
		}
	}
	refuse(len(spec.ClusterIPs) == 2, "must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs are specified")
	refuse(len(spec.IPFamilies) == 2, "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified")
	return errs
}

// validateFamilies validates the policy and the families against those of the cluster.
func validateFamilies(svc *corev1.Service, cluster []corev1.IPFamily) field.ErrorList {
	var errs field.ErrorList
	if isPolicy(svc, corev1.IPFamilyPolicyRequireDualStack) && len(cluster) < 2 {
		errs = append(errs, field.Invalid(field.NewPath("spec", "ipFamilyPolicy"), svc.Spec.IPFamilyPolicy, "this cluster is not configured for dual-stack services"))
	}
	for i, family := range svc.Spec.IPFamilies {
		if !slices.Contains(cluster, family) {
			errs = append(errs, field.Invalid(field.NewPath("spec", "ipFamilies").Index(i), family, "not configured on this cluster"))
		}
	}
	return errs
}

// validateAddresses validates the form of the address fields and that they agree with each other.
func validateAddresses(svc, old *corev1.Service) field.ErrorList {
	in := mustInternal(svc).(*core.Service)
	if old == nil {
		return validation.ValidateServiceClusterIPsRelatedFields(in, nil)
	}
	return validation.ValidateServiceClusterIPsRelatedFields(in, mustInternal(old).(*core.Service))
}
