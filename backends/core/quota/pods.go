package quota

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	resourcehelper "k8s.io/component-helpers/resource"

	"portico/backends/core/kinds/rules"
)

// podCount is the quota of all stored pods; corev1.ResourcePods is that of pods that have not
// ended.
var podCount = countName("", "pods")

// podNames are the names of the quotas of pods that do not depend on a resource's name.
var podNames = []corev1.ResourceName{
	podCount, corev1.ResourcePods, corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
	corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory, corev1.ResourceRequestsEphemeralStorage,
	corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage,
}

// mandatory are the quotas for which each container has to say what it needs, unless the pod
// does.
var mandatory = []corev1.ResourceName{
	corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory,
	corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory,
}

func pods(list generic.ListFuncByNamespace, now func() time.Time) quota.Evaluator {
	return &evaluator[*corev1.Pod]{
		resource: schema.GroupResource{Resource: "pods"}, list: list,
		names: func(name corev1.ResourceName) bool {
			return slices.Contains(podNames, name) || rules.HugePages(name) ||
				strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix) || Extended(name)
		},
		handles: func(a admission.Attributes) bool {
			if a.GetSubresource() == "resize" {
				return a.GetOperation() == admission.Update
			}
			pod, old, ok := both[*corev1.Pod](a)
			return creates(a) || updates(a) && ok && Terminating(pod) != Terminating(old)
		},
		inScope:     podInScope,
		constraints: podConstraints,
		usage:       func(pod *corev1.Pod) corev1.ResourceList { return podUsage(pod, now()) },
	}
}

// Extended reports whether a quota of that name is one of requests of an extended resource, or of the
// devices of a class as such a resource.
func Extended(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix) &&
		(!rules.Native(name) || strings.HasPrefix(string(name), corev1.ResourceImplicitExtendedClaimsPerClass))
}

// podConstraints requires that containers say how much CPU and memory they need if that has a
// quota.
func podConstraints(names []corev1.ResourceName, pod *corev1.Pod) error {
	if resourcehelper.IsPodLevelResourcesSet(pod) {
		return nil
	}
	missing := map[corev1.ResourceName][]string{}
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		has := computeUsage(c.Resources.Requests, c.Resources.Limits)
		for _, name := range names {
			if _, ok := has[name]; !ok && slices.Contains(mandatory, name) {
				missing[name] = append(missing[name], c.Name)
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		slices.Sort(missing[name])
		all = append(all, fmt.Sprintf("%s for: %s", name, strings.Join(slices.Compact(missing[name]), ",")))
	}
	return fmt.Errorf("must specify %s", strings.Join(all, "; "))
}

// podUsage returns what a pod is charged: its compute resources until it ends, and the object
// until it is deleted.
func podUsage(pod *corev1.Pod, now time.Time) corev1.ResourceList {
	out := corev1.ResourceList{podCount: count(1)}
	if !Running(pod, now) {
		return out
	}
	opts := resourcehelper.PodResourcesOptions{UseStatusResources: true}
	maps.Copy(out, computeUsage(resourcehelper.PodRequests(pod, opts), resourcehelper.PodLimits(pod, opts)))
	return out
}

// computeUsage returns the usage of compute resources by requests and limits.
func computeUsage(requests, limits corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{corev1.ResourcePods: count(1)}
	common := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}
	for name, q := range requests {
		own := slices.Contains(common, name) || rules.HugePages(name)
		if own {
			out[name] = q
		}
		if own || rules.ExtendedResource(name) || strings.HasPrefix(string(name), resourcev1.ResourceDeviceClassPrefix) {
			out[asRequest(name)] = q
		}
	}
	for _, name := range common {
		if q, ok := limits[name]; ok {
			out["limits."+name] = q
		}
	}
	return out
}

// Running reports whether a pod is charged for compute resources: it has not ended, and is not
// stuck in its deletion after its grace period.
func Running(pod *corev1.Pod, now time.Time) bool {
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return false
	}
	if pod.DeletionTimestamp == nil || pod.DeletionGracePeriodSeconds == nil {
		return true
	}
	return !now.After(pod.DeletionTimestamp.Add(time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second))
}

// Terminating reports whether a pod is in the scope Terminating: it has a deadline.
func Terminating(pod *corev1.Pod) bool {
	return pod.Spec.ActiveDeadlineSeconds != nil && *pod.Spec.ActiveDeadlineSeconds >= 0
}

func podInScope(s corev1.ScopedResourceSelectorRequirement, pod *corev1.Pod) (bool, error) {
	switch s.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return Terminating(pod), nil
	case corev1.ResourceQuotaScopeNotTerminating:
		return !Terminating(pod), nil
	case corev1.ResourceQuotaScopeBestEffort:
		return bestEffort(pod), nil
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !bestEffort(pod), nil
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return pod.Spec.Affinity != nil && slices.ContainsFunc(affinityTerms(pod.Spec.Affinity), func(t corev1.PodAffinityTerm) bool {
			return len(t.Namespaces) > 0 || t.NamespaceSelector != nil
		}), nil
	case corev1.ResourceQuotaScopePriorityClass:
		class := pod.Spec.PriorityClassName
		if s.Operator == corev1.ScopeSelectorOpExists {
			return class != "", nil
		}
		if class == "" {
			return among(s)
		}
		return among(s, class)
	}
	return false, nil
}

// bestEffort reports whether a pod has that quality of service: the one in its status, or as its
// spec says.
func bestEffort(pod *corev1.Pod) bool {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass == corev1.PodQOSBestEffort
	}
	if resourcehelper.IsPodLevelResourcesSet(pod) {
		return !needs(pod.Spec.Resources)
	}
	return !slices.ContainsFunc(slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers), func(c corev1.Container) bool {
		return needs(&c.Resources)
	})
}

// needs reports whether CPU or memory is requested or limited.
func needs(r *corev1.ResourceRequirements) bool {
	for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
		if !list.Cpu().IsZero() || !list.Memory().IsZero() {
			return true
		}
	}
	return false
}

// affinityTerms returns all terms of the affinities to, and away from, other pods.
func affinityTerms(a *corev1.Affinity) []corev1.PodAffinityTerm {
	var out []corev1.PodAffinityTerm
	var weighted []corev1.WeightedPodAffinityTerm
	if p := a.PodAffinity; p != nil {
		out, weighted = append(out, p.RequiredDuringSchedulingIgnoredDuringExecution...), append(weighted, p.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
	if p := a.PodAntiAffinity; p != nil {
		out, weighted = append(out, p.RequiredDuringSchedulingIgnoredDuringExecution...), append(weighted, p.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
	for _, w := range weighted {
		out = append(out, w.PodAffinityTerm)
	}
	return out
}
