package kinds

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateUpdate adds the rules about what may not change: the primary address
// and family while the service routes, and what others were told of it.
func (r serviceRules) validateUpdate(svc, old *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	if svc.Spec.Type != corev1.ServiceTypeExternalName && old.Spec.Type != corev1.ServiceTypeExternalName {
		errs = append(errs, validateClusterIPChange(svc, old)...)
		if !isHeadless(svc) && !isHeadless(old) {
			errs = append(errs, validateFamilyChange(svc, old)...)
		}
	}
	lb := corev1.ServiceTypeLoadBalancer
	if svc.Spec.Type == lb && old.Spec.Type == lb && !equalPointers(svc.Spec.LoadBalancerClass, old.Spec.LoadBalancerClass) {
		errs = append(errs, field.Invalid(field.NewPath("spec", "loadBalancerClass"), svc.Spec.LoadBalancerClass, "may not change once set"))
	}
	// Port 0 was never allocated: setting it once is no change.
	if was := old.Spec.HealthCheckNodePort; was != 0 && needsHealthCheckPort(svc) && needsHealthCheckPort(old) &&
		svc.Spec.HealthCheckNodePort != was {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "healthCheckNodePort"), "field is immutable"))
	}
	errs = append(errs, validateService(svc)...)
	return append(errs, r.validateFamilies(svc, old)...)
}

// validateClusterIPChange lets a second address come and go, and the first
// one come, but nothing that is set change.
func validateClusterIPChange(svc, old *corev1.Service) field.ErrorList {
	if isHeadless(svc) && isHeadless(old) {
		return nil
	}
	path, now, was := field.NewPath("spec", "clusterIPs"), svc.Spec.ClusterIPs, old.Spec.ClusterIPs
	var errs field.ErrorList
	if len(was) > 0 && len(now) == 0 {
		return append(errs, field.Invalid(path.Index(0), now, "primary clusterIP can not be unset"))
	}
	compare := min(len(now), len(was), 1)
	if len(now) == len(was) {
		compare = len(now)
	}
	for i := range compare {
		if now[i] != was[i] {
			errs = append(errs, field.Invalid(path.Index(i), now, "may not change once set"))
		}
	}
	if len(was) > len(now) && len(now) == 1 && !isPolicy(svc, corev1.IPFamilyPolicySingleStack) {
		errs = append(errs, field.Invalid(field.NewPath("spec", "ipFamilyPolicy"), svc.Spec.IPFamilyPolicy,
			"must be set to 'SingleStack' when releasing the secondary clusterIP"))
	}
	return errs
}

func validateFamilyChange(svc, old *corev1.Service) field.ErrorList {
	path, now, was := field.NewPath("spec", "ipFamilies"), svc.Spec.IPFamilies, old.Spec.IPFamilies
	var errs field.ErrorList
	if len(was) > 0 && len(now) == 0 {
		return append(errs, field.Invalid(path.Index(0), now, "primary ipFamily can not be unset"))
	}
	compare := min(len(now), len(was), 1)
	if len(now) == len(was) {
		compare = len(now)
	}
	for i := range compare {
		if now[i] != was[i] {
			errs = append(errs, field.Invalid(path.Index(0), now, "may not change once set"))
		}
	}
	if len(was) > len(now) && len(now) == 1 && !isPolicy(svc, corev1.IPFamilyPolicySingleStack) {
		errs = append(errs, field.Invalid(field.NewPath("spec", "ipFamilyPolicy"), svc.Spec.IPFamilyPolicy,
			"must be set to 'SingleStack' when releasing the secondary ipFamily"))
	}
	return errs
}
