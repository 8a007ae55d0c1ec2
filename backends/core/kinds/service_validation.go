package kinds

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"portico/backends/core/kinds/rules"
)

func validateService(svc *corev1.Service) field.ErrorList {
	return validateServiceSpec(svc, nil)
}

// validateServiceUpdate adds the rules for fields that must not change: the primary address and
// family, the load balancer class and the health check port.
func validateServiceUpdate(svc, old *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	if svc.Spec.Type != corev1.ServiceTypeExternalName && old.Spec.Type != corev1.ServiceTypeExternalName {
		if !isHeadless(svc) || !isHeadless(old) {
			errs = append(errs, validateStackChange(svc, svc.Spec.ClusterIPs, old.Spec.ClusterIPs, field.NewPath("spec", "clusterIPs"), "clusterIP")...)
		}
		if !isHeadless(svc) && !isHeadless(old) {
			errs = append(errs, validateStackChange(svc, svc.Spec.IPFamilies, old.Spec.IPFamilies, field.NewPath("spec", "ipFamilies"), "ipFamily")...)
		}
	}
	lb := corev1.ServiceTypeLoadBalancer
	if svc.Spec.Type == lb && old.Spec.Type == lb && !ptr.Equal(svc.Spec.LoadBalancerClass, old.Spec.LoadBalancerClass) {
		errs = append(errs, field.Invalid(field.NewPath("spec", "loadBalancerClass"), svc.Spec.LoadBalancerClass, "may not change once set"))
	}
	if needsHealthCheckPort(svc) && needsHealthCheckPort(old) && svc.Spec.HealthCheckNodePort != old.Spec.HealthCheckNodePort {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "healthCheckNodePort"), "field is immutable"))
	}
	return append(errs, validateServiceSpec(svc, old)...)
}

// validateStackChange validates a change of the addresses or families: the first may be added
// and the second added or removed, but none may change.
func validateStackChange[T comparable](svc *corev1.Service, now, was []T, path *field.Path, name string) field.ErrorList {
	var errs field.ErrorList
	if len(was) > len(now) && len(svc.Spec.ClusterIPs) == 0 {
		errs = append(errs, field.Invalid(path.Index(0), now, "primary "+name+" can not be unset"))
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
			"must be set to 'SingleStack' when releasing the secondary "+name))
	}
	return errs
}

// validateServiceSpec validates a service by itself. old is nil on create.
func validateServiceSpec(svc, old *corev1.Service) field.ErrorList {
	spec := field.NewPath("spec")
	errs := validateTopologyAnnotations(svc)
	errs = append(errs, validateServiceType(svc, spec)...)
	errs = append(errs, validateServicePorts(svc, spec.Child("ports"))...)
	if svc.Spec.Selector != nil {
		errs = append(errs, metav1validation.ValidateLabels(svc.Spec.Selector, spec.Child("selector"))...)
	}
	errs = append(errs, validateAffinity(&svc.Spec, spec)...)
	errs = append(errs, validateClusterIPs(svc, old)...)
	for i, ip := range svc.Spec.ExternalIPs {
		path := spec.Child("externalIPs").Index(i)
		if bad := validateLegacyIP(ip, path); len(bad) > 0 {
			errs = append(errs, bad...)
			continue
		}
		errs = append(errs, rules.NonSpecialIP(ip, path)...)
	}
	errs = append(errs, validateLoadBalancer(svc, spec)...)
	return append(errs, validateTraffic(svc, spec)...)
}

func validateTopologyAnnotations(svc *corev1.Service) field.ErrorList {
	hints, hasHints := svc.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]
	mode, hasMode := svc.Annotations[corev1.AnnotationTopologyMode]
	if hasHints && hasMode && hints != mode {
		return field.ErrorList{field.Invalid(field.NewPath("metadata", "annotations").Key(corev1.AnnotationTopologyMode), mode,
			fmt.Sprintf("must match annotations[%s] when both are specified", corev1.DeprecatedAnnotationTopologyAwareHints))}
	}
	return nil
}

// validateServiceType validates the fields that a type requires or forbids.
func validateServiceType(svc *corev1.Service, path *field.Path) field.ErrorList {
	errs := rules.Enum(svc.Spec.Type, path.Child("type"), corev1.ServiceTypeClusterIP, corev1.ServiceTypeExternalName,
		corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort)
	if len(svc.Spec.Ports) == 0 && !isHeadless(svc) && svc.Spec.Type != corev1.ServiceTypeExternalName {
		errs = append(errs, field.Required(path.Child("ports"), ""))
	}
	switch svc.Spec.Type {
	case corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort:
		if isHeadless(svc) {
			errs = append(errs, field.Invalid(path.Child("clusterIPs").Index(0), svc.Spec.ClusterIPs[0],
				fmt.Sprintf("may not be set to 'None' for %s services", svc.Spec.Type)))
		}
	case corev1.ServiceTypeClusterIP:
		for i, port := range svc.Spec.Ports {
			if port.NodePort != 0 {
				errs = append(errs, field.Forbidden(path.Child("ports").Index(i).Child("nodePort"), "may not be used when `type` is 'ClusterIP'"))
			}
		}
	case corev1.ServiceTypeExternalName:
		errs = append(errs, validateExternalName(&svc.Spec, path)...)
	}
	return errs
}

func validateExternalName(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	forbid := func(set bool, name string) {
		if set {
			errs = append(errs, field.Forbidden(path.Child(name), "may not be set for ExternalName services"))
		}
	}
	forbid(len(spec.ClusterIPs) > 0, "clusterIPs")
	forbid(len(spec.IPFamilies) > 0, "ipFamilies")
	forbid(spec.IPFamilyPolicy != nil, "ipFamilyPolicy")
	// A fully qualified name may end in a dot.
	name := strings.TrimSuffix(spec.ExternalName, ".")
	if name == "" {
		return append(errs, field.Required(path.Child("externalName"), ""))
	}
	return append(errs, rules.Invalid(path.Child("externalName"), name, validation.IsDNS1123Subdomain(name))...)
}

func validateServicePorts(svc *corev1.Service, path *field.Path) field.ErrorList {
	// Ports and node ports are unique by protocol.
	type endpoint struct {
		protocol corev1.Protocol
		number   int32
	}
	names, ports, nodePorts := map[string]bool{}, map[endpoint]bool{}, map[endpoint]bool{}
	var errs field.ErrorList
	for i, port := range svc.Spec.Ports {
		at := path.Index(i)
		errs = append(errs, validateServicePort(&port, len(svc.Spec.Ports) > 1, at)...)
		if port.Name != "" && names[port.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), port.Name))
		}
		names[port.Name] = true
		if key := (endpoint{port.Protocol, port.NodePort}); port.NodePort != 0 {
			if nodePorts[key] {
				errs = append(errs, field.Duplicate(at.Child("nodePort"), port.NodePort))
			}
			nodePorts[key] = true
		}
		key := endpoint{port.Protocol, port.Port}
		if ports[key] {
			errs = append(errs, field.Duplicate(at, corev1.ServicePort{Protocol: port.Protocol, Port: port.Port}))
		}
		ports[key] = true
	}
	return errs
}

func validateServicePort(port *corev1.ServicePort, named bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case port.Name != "":
		errs = append(errs, rules.DNSLabel(port.Name, path.Child("name"))...)
	case named:
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	errs = append(errs, rules.Invalid(path.Child("port"), port.Port, validation.IsValidPortNum(int(port.Port)))...)
	errs = append(errs, rules.Protocol(port.Protocol, path.Child("protocol"))...)
	target := path.Child("targetPort")
	if port.TargetPort.Type == intstr.String {
		errs = append(errs, rules.Invalid(target, port.TargetPort.StrVal, validation.IsValidPortName(port.TargetPort.StrVal))...)
	} else {
		errs = append(errs, rules.Invalid(target, port.TargetPort.IntVal, validation.IsValidPortNum(int(port.TargetPort.IntVal)))...)
	}
	if port.AppProtocol != nil {
		errs = append(errs, rules.QualifiedName(*port.AppProtocol, path.Child("appProtocol"))...)
	}
	return errs
}

func validateAffinity(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	errs := rules.Enum(spec.SessionAffinity, path.Child("sessionAffinity"), corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone)
	config := path.Child("sessionAffinityConfig")
	switch spec.SessionAffinity {
	case corev1.ServiceAffinityNone:
		if spec.SessionAffinityConfig != nil {
			errs = append(errs, field.Forbidden(config, "must not be set when session affinity is None"))
		}
	case corev1.ServiceAffinityClientIP:
		const why = "when session affinity type is ClientIP"
		switch c := spec.SessionAffinityConfig; {
		case c == nil:
			errs = append(errs, field.Required(config, why))
		case c.ClientIP == nil:
			errs = append(errs, field.Required(config.Child("clientIP"), why))
		case c.ClientIP.TimeoutSeconds == nil:
			errs = append(errs, field.Required(config.Child("clientIP", "timeoutSeconds"), why))
		case *c.ClientIP.TimeoutSeconds <= 0 || *c.ClientIP.TimeoutSeconds > maxAffinitySeconds:
			errs = append(errs, field.Invalid(config.Child("clientIP", "timeoutSeconds"), *c.ClientIP.TimeoutSeconds,
				fmt.Sprintf("must be greater than 0 and less than %d", maxAffinitySeconds)))
		}
	}
	return errs
}

// maxAffinitySeconds is one day.
const maxAffinitySeconds = 86400

func validateLoadBalancer(svc *corev1.Service, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	spec, isLB := &svc.Spec, svc.Spec.Type == corev1.ServiceTypeLoadBalancer
	forbid := func(set bool, at *field.Path) {
		if set && !isLB {
			errs = append(errs, field.Forbidden(at, "may only be used when `type` is 'LoadBalancer'"))
		}
	}
	ranges, at, each := spec.LoadBalancerSourceRanges, path.Child("LoadBalancerSourceRanges"), true
	if len(ranges) == 0 {
		// The annotation is the older form of the field. Entries of both may have spaces.
		if value, ok := svc.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey]; ok {
			at, each = field.NewPath("metadata", "annotations").Key(corev1.AnnotationLoadBalancerSourceRangesKey), false
			forbid(true, at)
			if strings.TrimSpace(value) != "" {
				ranges = strings.Split(value, ",")
			}
		}
	} else {
		forbid(true, at)
	}
	for i, cidr := range ranges {
		entry := at
		if each {
			entry = at.Index(i)
		}
		errs = append(errs, validation.IsValidCIDRForLegacyField(entry, strings.TrimSpace(cidr), true, nil)...)
	}
	forbid(spec.AllocateLoadBalancerNodePorts != nil, path.Child("allocateLoadBalancerNodePorts"))
	if isLB && spec.AllocateLoadBalancerNodePorts == nil {
		errs = append(errs, field.Required(field.NewPath("allocateLoadBalancerNodePorts"), ""))
	}
	forbid(spec.LoadBalancerClass != nil, path.Child("loadBalancerClass"))
	if isLB && spec.LoadBalancerClass != nil {
		errs = append(errs, rules.QualifiedName(*spec.LoadBalancerClass, path.Child("loadBalancerClass"))...)
	}
	return errs
}

func validateTraffic(svc *corev1.Service, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	spec := &svc.Spec
	external := path.Child("externalTrafficPolicy")
	switch {
	case externallyAccessible(svc):
		errs = append(errs, rules.Enum(spec.ExternalTrafficPolicy, external,
			corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)...)
	case spec.ExternalTrafficPolicy != "":
		errs = append(errs, field.Invalid(external, spec.ExternalTrafficPolicy, "may only be set for externally-accessible services"))
	}
	switch port, at := spec.HealthCheckNodePort, path.Child("healthCheckNodePort"); {
	case !needsHealthCheckPort(svc) && port != 0:
		errs = append(errs, field.Invalid(at, port, "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"))
	case needsHealthCheckPort(svc) && port == 0:
		errs = append(errs, field.Required(at, ""))
	case port != 0:
		errs = append(errs, rules.Invalid(at, port, validation.IsValidPortNum(int(port)))...)
	}
	internal := path.Child("internalTrafficPolicy")
	switch {
	case spec.InternalTrafficPolicy != nil:
		errs = append(errs, rules.Supported(*spec.InternalTrafficPolicy, internal,
			corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal)...)
	case hasTrafficPolicy(spec.Type):
		errs = append(errs, field.Required(internal, ""))
	}
	if spec.TrafficDistribution != nil {
		errs = append(errs, rules.Supported(*spec.TrafficDistribution, path.Child("trafficDistribution"),
			corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone,
			corev1.ServiceTrafficDistributionPreferSameNode)...)
	}
	return errs
}

// validateLegacyIP accepts an address in any unambiguous form, for fields that are older than
// the rule that requires the canonical one.
func validateLegacyIP(ip string, path *field.Path) field.ErrorList {
	return validation.IsValidIPForLegacyField(path, ip, true, nil)
}

func validateServiceStatus(svc *corev1.Service) field.ErrorList {
	path := field.NewPath("status", "loadBalancer", "ingress")
	ingress := svc.Status.LoadBalancer.Ingress
	if svc.Spec.Type != corev1.ServiceTypeLoadBalancer && len(ingress) > 0 {
		return field.ErrorList{field.Forbidden(path, "may only be used when `spec.type` is 'LoadBalancer'")}
	}
	var errs field.ErrorList
	for i, in := range ingress {
		errs = append(errs, validateIngress(&in, path.Index(i))...)
	}
	return errs
}

func validateIngress(in *corev1.LoadBalancerIngress, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if in.IP != "" {
		errs = append(errs, validateLegacyIP(in.IP, path.Child("ip"))...)
	}
	switch mode := path.Child("ipMode"); {
	case in.IPMode == nil && in.IP != "":
		errs = append(errs, field.Required(mode, "must be specified when `ip` is set"))
	case in.IPMode != nil && in.IP == "":
		errs = append(errs, field.Forbidden(mode, "may not be specified when `ip` is not set"))
	case in.IPMode != nil:
		errs = append(errs, rules.Supported(*in.IPMode, mode, corev1.LoadBalancerIPModeProxy, corev1.LoadBalancerIPModeVIP)...)
	}
	if in.Hostname != "" {
		host := path.Child("hostname")
		errs = append(errs, rules.Subdomain(in.Hostname, host)...)
		errs = append(errs, rules.NoIP(in.Hostname, host)...)
	}
	return errs
}

// serviceWarnings warns of fields that are set and have no effect.
func serviceWarnings(svc *corev1.Service) []string {
	var warnings []string
	warn := func(when bool, text string) {
		if when {
			warnings = append(warnings, text)
		}
	}
	spec := &svc.Spec
	_, hints := svc.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]
	warn(hints, fmt.Sprintf("annotation %s is deprecated, please use %s instead",
		corev1.DeprecatedAnnotationTopologyAwareHints, corev1.AnnotationTopologyMode))
	if isHeadless(svc) {
		warn(spec.LoadBalancerIP != "", "spec.loadBalancerIP is ignored for headless services")
		warn(len(spec.ExternalIPs) > 0, "spec.externalIPs is ignored for headless services")
		warn(spec.SessionAffinity != corev1.ServiceAffinityNone, "spec.SessionAffinity is ignored for headless services")
	}
	path, external := field.NewPath("spec"), spec.Type == corev1.ServiceTypeExternalName
	if usesClusterIPs(svc) && !isHeadless(svc) {
		for i, ip := range spec.ClusterIPs {
			warnings = append(warnings, validation.GetWarningsForIP(path.Child("clusterIPs").Index(i), ip)...)
		}
	}
	for i, ip := range spec.ExternalIPs {
		warnings = append(warnings, validation.GetWarningsForIP(path.Child("externalIPs").Index(i), ip)...)
	}
	warn(len(spec.ExternalIPs) > 0 && !isHeadless(svc) && !external, "spec.externalIPs is deprecated and may no longer be implemented in some clusters")
	if spec.LoadBalancerIP != "" {
		warnings = append(warnings, validation.GetWarningsForIP(path.Child("loadBalancerIP"), spec.LoadBalancerIP)...)
	}
	for i, cidr := range spec.LoadBalancerSourceRanges {
		warnings = append(warnings, validation.GetWarningsForCIDR(path.Child("loadBalancerSourceRanges").Index(i), cidr)...)
	}
	warn(external && len(spec.ExternalIPs) > 0, `spec.externalIPs is ignored when spec.type is "ExternalName"`)
	warn(!external && spec.ExternalName != "", `spec.externalName is ignored when spec.type is not "ExternalName"`)
	if d := spec.TrafficDistribution; d != nil && *d == corev1.ServiceTrafficDistributionPreferClose {
		warnings = append(warnings, fmt.Sprintf("spec.trafficDistribution: %q is deprecated; use %q", *d, corev1.ServiceTrafficDistributionPreferSameZone))
	}
	return slices.Clip(warnings)
}

// serviceStatusWarnings warns of addresses in unusual forms.
func serviceStatusWarnings(svc *corev1.Service) (warnings []string) {
	for i, in := range svc.Status.LoadBalancer.Ingress {
		if in.IP != "" {
			warnings = append(warnings, validation.GetWarningsForIP(field.NewPath("status", "loadBalancer", "ingress").Index(i), in.IP)...)
		}
	}
	return warnings
}
