package podspec

import (
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/rules"
)

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
