package kinds

import (
	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"portico/backends/core/kinds/podspec"
	"portico/backends/core/kinds/rules"
)

// defaultPodResources completes the resources of a pod as a whole, if it has any, by those of
// its containers.
func defaultPodResources(spec *corev1.PodSpec) {
	r := spec.Resources
	if r == nil || len(r.Limits)+len(r.Requests) == 0 {
		return
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: spec.Containers, InitContainers: spec.InitContainers}}
	limits := resourcehelper.AggregateContainerLimits(pod, resourcehelper.PodResourcesOptions{})
	requests := resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{})
	// set adds what to does not have.
	set := func(to *corev1.ResourceList, from corev1.ResourceList, wanted func(corev1.ResourceName) bool) {
		for name, q := range from {
			if _, ok := (*to)[name]; ok || !resourcehelper.IsSupportedPodLevelResource(name) || !wanted(name) {
				continue
			}
			if *to == nil {
				*to = corev1.ResourceList{}
			}
			(*to)[name] = q.DeepCopy()
		}
	}
	set(&r.Limits, limits, func(name corev1.ResourceName) bool {
		_, requested := r.Requests[name]
		return rules.HugePages(name) && !requested
	})
	set(&r.Requests, requests, func(name corev1.ResourceName) bool { return !rules.HugePages(name) })
	set(&r.Requests, r.Limits, func(corev1.ResourceName) bool { return true })
	for name, request := range r.Requests {
		if limit, ok := limits[name]; ok && limit.Cmp(request) < 0 {
			limits[name] = request
		}
	}
	set(&r.Limits, limits, func(name corev1.ResourceName) bool {
		if _, requested := r.Requests[name]; !requested {
			return false
		}
		for c := range podspec.Containers(spec) {
			if _, limited := c.Resources.Limits[name]; !limited {
				return false
			}
		}
		return true
	})
}

// qosClass returns the quality of service of a pod: that of its own resources, if it has any,
// or the common one of all containers.
func qosClass(spec *corev1.PodSpec) corev1.PodQOSClass {
	if r := spec.Resources; r != nil {
		for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
			for name := range list {
				if resourcehelper.IsSupportedPodLevelResource(name) {
					return qosOf(r)
				}
			}
		}
	}
	var class corev1.PodQOSClass
	for c := range podspec.Containers(spec) {
		if c.Ephemeral {
			continue
		}
		if own := qosOf(&c.Resources); class == "" {
			class = own
		} else if own != class {
			return corev1.PodQOSBurstable
		}
	}
	if class == "" {
		return corev1.PodQOSBestEffort
	}
	return class
}

// qosOf returns the quality of service that resources ask for: best effort without CPU and
// memory, guaranteed if the requests of both are their limits.
func qosOf(r *corev1.ResourceRequirements) corev1.PodQOSClass {
	zero := 0
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		request, limit := r.Requests[name], r.Limits[name]
		if !request.Equal(limit) {
			return corev1.PodQOSBurstable
		}
		if request.IsZero() {
			zero++
		}
	}
	return []corev1.PodQOSClass{corev1.PodQOSGuaranteed, corev1.PodQOSBurstable, corev1.PodQOSBestEffort}[zero]
}

// asResized returns a copy of resources with the CPU and memory of old, which a resize may
// change.
func asResized(r, old corev1.ResourceList) corev1.ResourceList {
	if r == nil && old == nil {
		return nil
	}
	out := r.DeepCopy()
	if out == nil {
		out = corev1.ResourceList{}
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		delete(out, name)
		if q, ok := old[name]; ok {
			out[name] = q
		}
	}
	return out
}

// removed reports whether old has a resource that list does not have.
func removed(list, old corev1.ResourceList) bool {
	for name := range old {
		if _, ok := list[name]; !ok {
			return true
		}
	}
	return false
}
