package podspec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	resourcehelper "k8s.io/component-helpers/resource"

	"portico/backends/core/kinds/rules"
)

// validateResources returns the errors of the resources and the overhead of the whole pod.
func validateResources(spec *corev1.PodSpec, path *field.Path, o Options) field.ErrorList {
	brokenPages := o.stored(hasBrokenPages)
	overhead := &corev1.ResourceRequirements{Limits: spec.Overhead}
	errs := rules.ResourceRequirements(overhead, rules.ContainerResourceName, brokenPages, path.Child("overhead"))
	r := spec.Resources
	if r == nil {
		return errs
	}
	path = path.Child("resources")
	if spec.OS != nil && spec.OS.Name == corev1.Windows {
		return append(errs, field.Forbidden(path, "may not be set for a windows pod"))
	}
	if r.Claims != nil {
		errs = append(errs, field.Forbidden(path.Child("claims"), "claims may not be set for Resources at pod-level"))
	}
	errs = append(errs, rules.ResourceRequirements(r, podResourceName, brokenPages, path)...)
	errs = append(errs, claimReferences(r.Claims, claimNames(spec), path.Child("claims"))...)
	return append(errs, containersFit(spec, path)...)
}

// podResourceName requires the name of a resource that a pod can share among its containers.
func podResourceName(name corev1.ResourceName, path *field.Path) field.ErrorList {
	if errs := rules.ResourceName(name, path); len(errs) > 0 {
		return errs
	}
	if resourcehelper.IsSupportedPodLevelResource(name) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, name, sets.List(resourcehelper.SupportedPodLevelResources()))}
}

// containersFit requires that the resources of containers fit in those of the pod.
func containersFit(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	pod := &corev1.Pod{Spec: *spec}
	exceeds := func(sums, whole corev1.ResourceList, list string, matters func(corev1.ResourceName) bool) {
		for _, name := range slices.Sorted(maps.Keys(sums)) {
			sum := sums[name]
			if limit, ok := whole[name]; ok && matters(name) && sum.Cmp(limit) > 0 {
				errs = append(errs, field.Invalid(path.Child(list).Key(string(name)), limit.String(),
					fmt.Sprintf("must be greater than or equal to aggregate container %s of %s", list, sum.String())))
			}
		}
	}
	exceeds(resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{}), spec.Resources.Requests, "requests",
		func(corev1.ResourceName) bool { return true })
	exceeds(resourcehelper.AggregateContainerLimits(pod, resourcehelper.PodResourcesOptions{}), spec.Resources.Limits, "limits", rules.HugePages)
	for i, c := range spec.Containers {
		for _, name := range slices.Sorted(maps.Keys(c.Resources.Limits)) {
			own := c.Resources.Limits[name]
			if limit, ok := spec.Resources.Limits[name]; ok && own.Cmp(limit) > 0 {
				errs = append(errs, field.Invalid(path.Child("containers").Index(i).Key(string(name)).Child("limits"), own.String(),
					"must be less than or equal to pod limits of "+limit.String()))
			}
		}
	}
	return errs
}

// hasBrokenPages reports whether a spec has quantities of huge pages that are not whole pages.
func hasBrokenPages(spec *corev1.PodSpec) bool {
	lists := []corev1.ResourceList{spec.Overhead}
	for c := range Containers(spec) {
		lists = append(lists, c.Resources.Limits, c.Resources.Requests)
	}
	for _, list := range lists {
		for name, q := range list {
			if !rules.WholePages(name, q) {
				return true
			}
		}
	}
	return false
}

// maxListed bounds the claims that an error lists.
const maxListed = 100

// claimNames returns the names of the resource claims of a pod.
func claimNames(spec *corev1.PodSpec) sets.Set[string] {
	names := sets.New[string]()
	for _, c := range spec.ResourceClaims {
		names.Insert(c.Name)
	}
	return names.Delete("")
}

// claimReferences returns the errors of references to the resource claims of a pod. One refers
// to a whole claim or to a request of it, and no two to the same.
func claimReferences(refs []corev1.ResourceClaim, claims sets.Set[string], path *field.Path) field.ErrorList {
	var errs field.ErrorList
	// Seen are the claims and requests, and parts the claims with requests.
	seen, parts := sets.New[string](), sets.New[string]()
	for i, ref := range refs {
		at := path.Index(i)
		if ref.Name == "" {
			errs = append(errs, field.Required(at, ""))
			continue
		}
		key := ref.Name
		if !seen.Has(ref.Name) && ref.Request != "" {
			errs = append(errs, rules.DNSLabel(ref.Request, at.Child("request"))...)
			key += "/" + ref.Request
			parts.Insert(ref.Name)
		}
		if seen.Has(key) || ref.Request == "" && parts.Has(ref.Name) {
			errs = append(errs, field.Duplicate(at, key))
		}
		seen.Insert(key)
		if !claims.Has(ref.Name) {
			missing := field.NotFound(at, ref.Name)
			missing.Detail = "must be one of the names in pod.spec.resourceClaims"
			if len(claims) == 0 {
				missing.Detail += " which is empty"
			} else {
				names := sets.List(claims)
				missing.Detail += ": " + strings.Join(names[:min(len(names), maxListed)], ", ")
			}
			errs = append(errs, missing)
		}
	}
	return errs
}

// validateResourceClaims returns the errors of the resource claims of a spec.
func validateResourceClaims(spec *corev1.PodSpec, meta *metav1.ObjectMeta, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i := range spec.ResourceClaims {
		c, at := &spec.ResourceClaims[i], path.Index(i)
		if meta != nil && hasAnnotation(meta, corev1.MirrorPodAnnotationKey) {
			errs = append(errs, field.Forbidden(field.NewPath(""), "static pods do not support resource claims"))
			continue
		}
		switch name := at.Child("name"); {
		case c.Name == "":
			errs = append(errs, field.Required(name, ""))
		case seen[c.Name]:
			errs = append(errs, field.Duplicate(name, c.Name))
		default:
			errs = append(errs, rules.DNSLabel(c.Name, name)...)
			seen[c.Name] = true
		}
		switch {
		case c.ResourceClaimName != nil && c.ResourceClaimTemplateName != nil:
			errs = append(errs, field.Invalid(at, c, "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"))
		case c.ResourceClaimName == nil && c.ResourceClaimTemplateName == nil:
			errs = append(errs, field.Invalid(at, c, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"))
		}
		for name, value := range map[string]*string{"resourceClaimName": c.ResourceClaimName, "resourceClaimTemplateName": c.ResourceClaimTemplateName} {
			if value != nil {
				errs = append(errs, rules.Invalid(at.Child(name), *value, apivalidation.NameIsDNSSubdomain(*value, false))...)
			}
		}
	}
	return errs
}

func hasAnnotation(meta *metav1.ObjectMeta, name string) bool {
	_, ok := meta.Annotations[name]
	return ok
}
