package kinds

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// validateResize permits changes of CPU and memory.
func validateResize(p, old *corev1.Pod) field.ErrorList {
	switch {
	case isMirror(old):
		return field.ErrorList{field.Forbidden(field.NewPath(""), "static pods cannot be resized")}
	case old.Spec.OS != nil && old.Spec.OS.Name == corev1.Windows:
		return field.ErrorList{field.Forbidden(field.NewPath(""), "windows pods cannot be resized")}
	}
	errs := validateWholePod(p, old)
	if cmp.Or(old.Status.QOSClass, qosClass(&old.Spec)) != qosClass(&p.Spec) {
		errs = append(errs, field.Invalid(podSpecPath, p.Status.QOSClass, "Pod QOS Class may not change as a result of resizing"))
	}
	if !resizable(old) {
		errs = append(errs, field.Forbidden(podSpecPath, "Pod running on node without support for resize"))
	}
	now := p.Spec.DeepCopy()
	errs = append(errs, validatePodResize(now, &old.Spec)...)
	if order := validateOrder(&p.Spec, &old.Spec); len(order) > 0 {
		return append(errs, order...)
	}
	for i := range now.InitContainers {
		c, was, path := &now.InitContainers[i], &old.Spec.InitContainers[i], podSpecPath.Child("initContainers").Index(i)
		changed := !equality.Semantic.DeepEqual(c, was)
		errs = append(errs, validateContainerResize(c, was, path)...)
		if !equality.Semantic.DeepEqual(c, was) {
			errs = append(errs, field.Forbidden(path, "only cpu and memory resources for init or sidecar containers are mutable"))
		}
		for _, policy := range c.ResizePolicy {
			if changed && ptr.Deref(c.RestartPolicy, "") != corev1.ContainerRestartPolicyAlways && policy.RestartPolicy == corev1.RestartContainer {
				errs = append(errs, field.Forbidden(path, "non-sidecar init containers with a resize policy of RestartContainer cannot be resized"))
			}
		}
	}
	for i := range now.Containers {
		c, was := &now.Containers[i], &old.Spec.Containers[i]
		errs = append(errs, validateContainerResize(c, was, podSpecPath.Child("containers").Index(i))...)
		if !equality.Semantic.DeepEqual(c, was) {
			errs = append(errs, field.Forbidden(podSpecPath, "only cpu and memory resources are mutable"))
		}
	}
	if !equality.Semantic.DeepEqual(now.Volumes, old.Spec.Volumes) {
		errs = append(errs, field.Forbidden(podSpecPath.Child("volumes"), "volumes are immutable on resize when InPlacePodVerticalScalingMemoryBackedVolumes feature gate is disabled"))
	}
	if len(errs) == 0 && !equality.Semantic.DeepEqual(*now, old.Spec) {
		errs = append(errs, field.Forbidden(podSpecPath, "only cpu and memory resources are mutable"))
	}
	return errs
}

// resizable reports whether the node of a pod can resize it, as far as its status tells.
func resizable(p *corev1.Pod) bool {
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Running != nil {
			return c.Resources != nil
		}
	}
	return true
}

// validatePodResize checks the resources of the pod as a whole, and gives now the CPU and
// memory of old.
func validatePodResize(now, old *corev1.PodSpec) field.ErrorList {
	set := func(r *corev1.ResourceRequirements) bool { return r != nil && len(r.Requests)+len(r.Limits) > 0 }
	if !set(now.Resources) && !set(old.Resources) {
		return nil
	}
	path, r := podSpecPath.Child("resources"), now.Resources
	if r == nil {
		return field.ErrorList{field.Forbidden(path, "pod-level resources cannot be removed")}
	}
	var errs field.ErrorList
	was := old.Resources
	if was == nil {
		was = &corev1.ResourceRequirements{}
	}
	if removed(r.Requests, was.Requests) {
		errs = append(errs, field.Forbidden(path.Child("requests"), "pod-level resource requests cannot be removed"))
	}
	if removed(r.Limits, was.Limits) {
		errs = append(errs, field.Forbidden(path.Child("limits"), "pod-level resource limits cannot be removed"))
	}
	r.Requests, r.Limits = asResized(r.Requests, was.Requests), asResized(r.Limits, was.Limits)
	if old.Resources == nil && !set(r) && len(r.Claims) == 0 {
		now.Resources = nil
	}
	if !equality.Semantic.DeepEqual(now.Resources, old.Resources) {
		errs = append(errs, field.Forbidden(podSpecPath, "only cpu and memory resources are mutable at pod-level"))
	}
	return errs
}

// validateContainerResize is validatePodResize for a container.
func validateContainerResize(now, old *corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	path = path.Child("resources")
	if removed(now.Resources.Requests, old.Resources.Requests) {
		errs = append(errs, field.Forbidden(path.Child("requests"), "resource requests cannot be removed"))
	}
	if removed(now.Resources.Limits, old.Resources.Limits) {
		errs = append(errs, field.Forbidden(path.Child("limits"), "resource limits cannot be removed"))
	}
	now.Resources.Requests = asResized(now.Resources.Requests, old.Resources.Requests)
	now.Resources.Limits = asResized(now.Resources.Limits, old.Resources.Limits)
	return errs
}

// validateOrder requires the containers of old in their order.
func validateOrder(now, old *corev1.PodSpec) field.ErrorList {
	var errs field.ErrorList
	for _, list := range []struct {
		name     string
		now, was []corev1.Container
	}{{"containers", now.Containers, old.Containers}, {"initContainers", now.InitContainers, old.InitContainers}} {
		path := podSpecPath.Child(list.name)
		if len(list.now) != len(list.was) {
			errs = append(errs, field.Forbidden(path, list.name+" may not be added or removed on resize"))
			continue
		}
		for i, c := range list.now {
			if c.Name != list.was[i].Name {
				errs = append(errs, field.Forbidden(path.Index(i).Child("name"), list.name+" may not be renamed or reordered on resize"))
			}
		}
	}
	return errs
}
