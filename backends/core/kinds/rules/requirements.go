package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// standard are the resources without a domain, huge pages excepted.
var standard = append([]corev1.ResourceName{
	corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourceStorage,
	corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory, corev1.ResourceRequestsEphemeralStorage, corev1.ResourceRequestsStorage,
	corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage,
}, counted...)

// HugePages reports whether a resource is memory in pages of one size.
func HugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// Native reports whether a resource has the domain kubernetes.io, or none.
func Native(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// Overcommit reports whether the limit of a resource may be above its request.
func Overcommit(name corev1.ResourceName) bool { return Native(name) && !HugePages(name) }

// StandardResource reports whether a resource needs no domain.
func StandardResource(name corev1.ResourceName) bool {
	return slices.Contains(standard, name) || HugePages(name) || strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix)
}

// ResourceName requires the name of a resource: a standard one, or one with a domain.
func ResourceName(name corev1.ResourceName, path *field.Path) field.ErrorList {
	if errs := QualifiedName(string(name), path); len(errs) > 0 {
		return errs
	}
	if !strings.Contains(string(name), "/") && !StandardResource(name) {
		return field.ErrorList{field.Invalid(path, name, "must be a standard resource type or fully qualified")}
	}
	return nil
}

// ContainerResourceName requires the name of a resource that a container can use.
func ContainerResourceName(name corev1.ResourceName, path *field.Path) field.ErrorList {
	errs := ResourceName(name, path)
	switch {
	case !strings.Contains(string(name), "/"):
		if !HugePages(name) && name != corev1.ResourceCPU && name != corev1.ResourceMemory && name != corev1.ResourceEphemeralStorage {
			errs = append(errs, field.Invalid(path, name, "must be a standard resource for containers"))
		}
	case !Native(name) && !ExtendedResource(name):
		errs = append(errs, field.Invalid(path, name, "doesn't follow extended resource name standard"))
	}
	return errs
}

// WholePages reports whether a quantity of a resource is a multiple of its page size, if it
// has one.
func WholePages(name corev1.ResourceName, q resource.Quantity) bool {
	size, pages := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix)
	if !pages {
		return true
	}
	page, err := resource.ParseQuantity(size)
	return err == nil && page.Sign() > 0 && page.MilliValue()%1000 == 0 && q.Value()%page.Value() == 0
}

// ResourceRequirements checks the limits and requests of a container or pod. name checks the
// name of a resource. brokenPages permits quantities that are not whole pages.
func ResourceRequirements(r *corev1.ResourceRequirements, name func(corev1.ResourceName, *field.Path) field.ErrorList, brokenPages bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	compute, pages := false, false
	limits, requests := path.Child("limits"), path.Child("requests")
	check := func(path *field.Path, list corev1.ResourceList) {
		for _, n := range slices.Sorted(maps.Keys(list)) {
			q, at := list[n], path.Key(string(n))
			errs = append(errs, name(n, at)...)
			errs = append(errs, ResourceQuantity(n, q, at)...)
			if !brokenPages && !WholePages(n, q) {
				errs = append(errs, field.Invalid(at, q.String(), fmt.Sprintf("%s is not positive integer multiple of %s", q.String(), n)))
			}
			pages = pages || HugePages(n)
			compute = compute || n == corev1.ResourceCPU || n == corev1.ResourceMemory
		}
	}
	check(limits, r.Limits)
	check(requests, r.Requests)
	for _, n := range slices.Sorted(maps.Keys(r.Requests)) {
		q, overcommit := r.Requests[n], Overcommit(n)
		limit, limited := r.Limits[n]
		switch {
		case !limited && !overcommit:
			errs = append(errs, field.Required(limits, "Limit must be set for non overcommitable resources"))
		case limited && !overcommit && q.Cmp(limit) != 0:
			errs = append(errs, field.Invalid(requests, q.String(), fmt.Sprintf("must be equal to %s limit of %s", n, limit.String())))
		case limited && q.Cmp(limit) > 0:
			errs = append(errs, field.Invalid(requests, q.String(), fmt.Sprintf("must be less than or equal to %s limit of %s", n, limit.String())))
		}
	}
	if pages && !compute {
		errs = append(errs, field.Forbidden(path, "HugePages require cpu or memory"))
	}
	return errs
}
