package kinds

import (
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"portico/backends/core/kinds/rules"
)

const (
	notNegative      = "must be a non-negative integer"
	maxHealthMessage = corev1.ResourceHealthMessageMaxLength
)

var podStatusPath = field.NewPath("status")

// validatePodStatus returns the errors of an update of the status.
func validatePodStatus(p, old *corev1.Pod) field.ErrorList {
	s, was, path := &p.Status, &old.Status, podStatusPath
	errs := validatePodAnnotationUpdate(p, old)
	for i, c := range s.Conditions {
		at := path.Child("conditions").Index(i)
		if c.ObservedGeneration < 0 {
			errs = append(errs, field.Invalid(at.Child("observedGeneration"), c.ObservedGeneration, notNegative))
		}
		if c.Type != corev1.PodScheduled && c.Type != corev1.PodReady && c.Type != corev1.PodInitialized {
			errs = append(errs, rules.QualifiedName(string(c.Type), at.Child("Type"))...)
		}
	}
	if name := s.NominatedNodeName; name != was.NominatedNodeName && name != "" {
		at := path.Child("nominatedNodeName")
		errs = append(errs, rules.Invalid(at, name, apivalidation.NameIsDNSSubdomain(name, false))...)
		if old.Spec.NodeName != "" {
			errs = append(errs, field.Forbidden(at, "may not be set on pods that are already bound to a node"))
		}
	}
	if s.ObservedGeneration < 0 {
		errs = append(errs, field.Invalid(path.Child("observedGeneration"), s.ObservedGeneration, notNegative))
	}
	errs = append(errs, apivalidation.ValidateImmutableField(s.QOSClass, was.QOSClass, path.Child("qosClass"))...)
	errs = append(errs, validateTransitions(s, was, &old.Spec)...)
	errs = append(errs, validateClaimStatuses(p)...)
	errs = append(errs, validateExtendedClaim(p)...)
	errs = append(errs, validatePodIPs(s, was)...)
	errs = append(errs, validateHostIPs(s, was)...)
	for list, statuses := range map[string][]corev1.ContainerStatus{
		"containerStatuses": s.ContainerStatuses, "initContainerStatuses": s.InitContainerStatuses, "ephemeralContainerStatuses": s.EphemeralContainerStatuses,
	} {
		for i := range statuses {
			errs = append(errs, validateContainerStatus(p, &statuses[i], list, path.Child(list).Index(i))...)
		}
	}
	return errs
}

// validateTransitions forbids containers to run again that may not.
func validateTransitions(s, old *corev1.PodStatus, spec *corev1.PodSpec) field.ErrorList {
	var errs field.ErrorList
	all := slices.Concat(spec.InitContainers, spec.Containers)
	restartAll := slices.ContainsFunc(all, func(c corev1.Container) bool {
		return slices.ContainsFunc(c.RestartPolicyRules, func(r corev1.ContainerRestartRule) bool {
			return r.Action == corev1.ContainerRestartRuleActionRestartAllContainers
		})
	})
	check := func(now, old []corev1.ContainerStatus, list string, may func(name string, code int32) bool) {
		for i, was := range old {
			if was.State.Terminated == nil {
				continue
			}
			j := slices.IndexFunc(now, func(c corev1.ContainerStatus) bool { return c.Name == was.Name && c.State.Terminated == nil })
			if j >= 0 && !may(was.Name, was.State.Terminated.ExitCode) {
				errs = append(errs, field.Forbidden(podStatusPath.Child(list).Index(i).Child("state"), "may not be transitioned to non-terminated state"))
			}
		}
	}
	restarts := func(containers []corev1.Container) func(string, int32) bool {
		return func(name string, code int32) bool {
			i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == name })
			return restartAll || i >= 0 && mayRestart(&containers[i], spec.RestartPolicy, code)
		}
	}
	check(s.ContainerStatuses, old.ContainerStatuses, "containerStatuses", restarts(spec.Containers))
	check(s.InitContainerStatuses, old.InitContainerStatuses, "initContainerStatuses", restarts(spec.InitContainers))
	check(s.EphemeralContainerStatuses, old.EphemeralContainerStatuses, "ephemeralContainerStatuses", func(string, int32) bool { return false })
	return errs
}

// mayRestart reports whether a container that exited with a code is started again.
func mayRestart(c *corev1.Container, policy corev1.RestartPolicy, code int32) bool {
	if c.RestartPolicy != nil {
		for _, r := range c.RestartPolicyRules {
			if e := r.ExitCodes; e != nil && e.Operator != "" && slices.Contains(e.Values, code) == (e.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn) {
				if r.Action == corev1.ContainerRestartRuleActionRestart || r.Action == corev1.ContainerRestartRuleActionRestartAllContainers {
					return true
				}
				break
			}
		}
		policy = corev1.RestartPolicy(*c.RestartPolicy)
	}
	switch policy {
	case corev1.RestartPolicyOnFailure:
		return code != 0
	case corev1.RestartPolicyNever:
		return false
	}
	return true
}

func validateClaimStatuses(p *corev1.Pod) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, s := range p.Status.ResourceClaimStatuses {
		at := podStatusPath.Child("resourceClaimStatuses").Index(i)
		if !slices.ContainsFunc(p.Spec.ResourceClaims, func(c corev1.PodResourceClaim) bool { return c.Name == s.Name }) {
			errs = append(errs, field.Invalid(at.Child("name"), s.Name, "must match the name of an entry in `spec.resourceClaims`"))
		}
		if seen[s.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), s.Name))
		}
		seen[s.Name] = true
		if name := s.ResourceClaimName; name != nil {
			errs = append(errs, rules.Invalid(at.Child("resourceClaimName"), *name, apivalidation.NameIsDNSSubdomain(*name, false))...)
		}
	}
	return errs
}

// validateExtendedClaim returns the errors of the claim for the extended resources.
func validateExtendedClaim(p *corev1.Pod) field.ErrorList {
	s, path := p.Status.ExtendedResourceClaimStatus, podStatusPath.Child("extendedResourceClaimStatus")
	if s == nil {
		return nil
	}
	var errs field.ErrorList
	if len(s.RequestMappings) == 0 {
		errs = append(errs, field.Required(path.Child("requestMappings"), "at least one request mapping is required"))
	}
	containers := slices.Concat(p.Spec.Containers, p.Spec.InitContainers)
	for i, m := range s.RequestMappings {
		at := path.Child("requestMappings").Index(i)
		c := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == m.ContainerName })
		if c < 0 {
			errs = append(errs, field.Invalid(at.Child("containerName"), m.ContainerName, "must match the name of an entry in spec.initContainers.name or spec.containers.name"))
		} else if _, ok := containers[c].Resources.Requests[corev1.ResourceName(m.ResourceName)]; !ok {
			errs = append(errs, field.Invalid(at.Child("resourceName"), m.ResourceName, "must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests"))
		}
		errs = append(errs, rules.DNSLabel(m.RequestName, path.Child("requestName"))...)
		if slices.Contains(s.RequestMappings[:i], m) {
			errs = append(errs, field.Duplicate(at.Child("containerName"), m.ContainerName), field.Duplicate(at.Child("resourceName"), m.ResourceName),
				field.Duplicate(at.Child("requestName"), m.RequestName))
		}
	}
	if name := s.ResourceClaimName; name == "" {
		errs = append(errs, field.Required(path.Child("resourceClaimName"), ""))
	} else {
		errs = append(errs, rules.Invalid(path.Child("resourceClaimName"), name, apivalidation.NameIsDNSSubdomain(name, false))...)
	}
	return errs
}

func validatePodIPs(s, old *corev1.PodStatus) field.ErrorList {
	path := podStatusPath.Child("podIPs")
	ips := func(all []corev1.PodIP) []string {
		var out []string
		for _, ip := range all {
			out = append(out, ip.IP)
		}
		return out
	}
	errs := validateIPs(ips(s.PodIPs), ips(old.PodIPs), s.PodIPs, path)
	switch {
	case (s.PodIP == "") != (len(s.PodIPs) == 0):
		errs = append(errs, field.Invalid(path, s.PodIPs, "podIP and podIPs must either both be set or both be unset"))
	case s.PodIP != "" && s.PodIP != s.PodIPs[0].IP:
		errs = append(errs, field.Invalid(path.Index(0).Child("ip"), s.PodIPs[0].IP, "must be equal to `podIP`"))
	}
	return errs
}

func validateHostIPs(s, old *corev1.PodStatus) field.ErrorList {
	path := podStatusPath.Child("hostIPs")
	ips := func(all []corev1.HostIP) []string {
		var out []string
		for _, ip := range all {
			out = append(out, ip.IP)
		}
		return out
	}
	errs := validateIPs(ips(s.HostIPs), ips(old.HostIPs), s.HostIPs, path)
	if len(s.HostIPs) > 0 && s.HostIP != s.HostIPs[0].IP {
		errs = append(errs, field.Invalid(path.Index(0).Child("ip"), s.HostIPs[0].IP, "must be equal to `hostIP`"))
	}
	return errs
}

// validateIPs requires at most one address of each family. Invalid ones may be kept.
func validateIPs(ips, old []string, value any, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, ip := range ips {
		errs = append(errs, validation.IsValidIPForLegacyField(path.Index(i), ip, true, old)...)
	}
	if len(ips) > 1 {
		dual, err := netutils.IsDualStackIPStrings(ips)
		if err != nil {
			errs = append(errs, field.InternalError(path, fmt.Errorf("failed to check for dual stack with error:%v", err)))
		}
		if !dual || len(ips) > 2 {
			errs = append(errs, field.Invalid(path, value, "may specify no more than one IP for each IP family"))
		}
	}
	return errs
}

// validateContainerStatus returns the errors of the status of a container of a list.
func validateContainerStatus(p *corev1.Pod, s *corev1.ContainerStatus, list string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.User != nil && s.User.Linux != nil {
		user, at := s.User.Linux, path.Child("user", "linux")
		switch {
		case p.Spec.OS != nil && p.Spec.OS.Name == corev1.Windows:
			errs = append(errs, field.Forbidden(at, "cannot be set for a windows pod"))
		default:
			if user.UID < 0 || user.UID > math.MaxUint32 {
				errs = append(errs, field.Invalid(at.Child("uid"), user.UID, fmt.Sprintf("must be between 0 and %d, inclusive", int64(math.MaxUint32))))
			}
			errs = append(errs, rules.Invalid(at.Child("gid"), user.GID, validation.IsValidGroupID(user.GID))...)
			for i, id := range user.SupplementalGroups {
				errs = append(errs, rules.Invalid(at.Child("supplementalGroups").Index(i), id, validation.IsValidGroupID(id))...)
			}
		}
	}
	at := path.Child("allocatedResourcesStatus")
	containers := p.Spec.Containers
	switch list {
	case "ephemeralContainerStatuses":
		if len(s.AllocatedResourcesStatus) > 0 {
			errs = append(errs, field.Forbidden(at, "must not be specified in container status"))
		}
		return errs
	case "initContainerStatuses":
		containers = p.Spec.InitContainers
	}
	c := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == s.Name })
	for i, r := range s.AllocatedResourcesStatus {
		if c >= 0 {
			errs = append(errs, validateAllocated(&containers[c], r.Name, p.Status.ExtendedResourceClaimStatus, at.Index(i).Child("name"))...)
		}
		errs = append(errs, validateHealth(r.Resources, at.Index(i).Child("resources"))...)
	}
	return errs
}

// validateAllocated requires the name of a resource or a claim of a container.
func validateAllocated(c *corev1.Container, name corev1.ResourceName, extended *corev1.PodExtendedResourceClaimStatus, path *field.Path) field.ErrorList {
	text, isClaim := strings.CutPrefix(string(name), "claim:")
	if !isClaim {
		if _, ok := c.Resources.Requests[name]; ok {
			return nil
		}
		return field.ErrorList{field.Invalid(path, name, "must match one of the container's resource requests")}
	}
	claim, request, _ := strings.Cut(text, "/")
	if slices.ContainsFunc(c.Resources.Claims, func(r corev1.ResourceClaim) bool {
		return text == strings.TrimSuffix(r.Name+"/"+r.Request, "/")
	}) {
		return nil
	}
	if extended != nil && claim != "" && request != "" && claim == extended.ResourceClaimName {
		for _, m := range extended.RequestMappings {
			q := c.Resources.Requests[corev1.ResourceName(m.ResourceName)]
			if m.ContainerName == c.Name && m.RequestName == request && !q.IsZero() {
				return nil
			}
		}
	}
	return field.ErrorList{field.Invalid(path, name, "must match one of the container's resource claims as 'claim:<claimName>/<requestName>' when container.resources.claims[*].request is set or 'claim:<claimName>' when it is empty")}
}

func validateHealth(all []corev1.ResourceHealth, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[corev1.ResourceID]bool{}
	for i, r := range all {
		at := path.Index(i)
		errs = append(errs, rules.Supported(r.Health, at.Child("health"), corev1.ResourceHealthStatusHealthy, corev1.ResourceHealthStatusUnhealthy, corev1.ResourceHealthStatusUnknown)...)
		if m := r.Message; m != nil && *m == "" {
			errs = append(errs, field.Required(at.Child("message"), "must be non-empty if specified"))
		} else if m != nil && len(*m) > maxHealthMessage {
			errs = append(errs, field.TooLong(at.Child("message"), *m, maxHealthMessage))
		}
		if seen[r.ResourceID] {
			errs = append(errs, field.Duplicate(at.Child("resourceID"), r.ResourceID))
		}
		seen[r.ResourceID] = true
	}
	return errs
}
