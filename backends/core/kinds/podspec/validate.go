package podspec

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	unversionedvalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/rules"
)

// Options are what the rules of a pod spec depend on beside the spec.
type Options struct {
	// Pod is set for the spec of a Pod, and not for that of a template.
	Pod bool
	// Old and OldMeta are those of the stored object; nil on create. Values that older
	// releases accepted are kept if the stored object has them.
	Old     *corev1.PodSpec
	OldMeta *metav1.ObjectMeta
}

// stored reports whether the stored spec has a property.
func (o Options) stored(has func(old *corev1.PodSpec) bool) bool { return o.Old != nil && has(o.Old) }

// Validate returns the errors of a defaulted pod spec. meta is the metadata of the pod, nil
// for a template.
func Validate(spec *corev1.PodSpec, meta *metav1.ObjectMeta, path *field.Path, o Options) field.ErrorList {
	var errs field.ErrorList
	if spec.TerminationGracePeriodSeconds == nil {
		errs = append(errs, field.Required(path.Child("terminationGracePeriodSeconds"), ""))
	}
	volumes, volumeErrs := validateVolumes(spec, meta, path.Child("volumes"), o)
	errs = append(errs, volumeErrs...)
	errs = append(errs, validateResourceClaims(spec, meta, path.Child("resourceClaims"))...)
	errs = append(errs, validateContainers(spec, volumes, path, o)...)
	errs = append(errs, validateResources(spec, path, o)...)
	errs = append(errs, rules.Enum(spec.RestartPolicy, path.Child("restartPolicy"), corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)...)
	errs = append(errs, unversionedvalidation.ValidateLabels(spec.NodeSelector, path.Child("nodeSelector"))...)
	errs = append(errs, validateSecurity(spec, path, o)...)
	errs = append(errs, validateNetwork(spec, path, o)...)
	errs = append(errs, validateScheduling(spec, path, o)...)
	return errs
}

// ValidateTemplate returns the errors of a defaulted pod template.
func ValidateTemplate(t *corev1.PodTemplateSpec, path *field.Path, o Options) field.ErrorList {
	errs := validateTemplateMeta(t, path, o)
	errs = append(errs, Validate(&t.Spec, nil, path.Child("spec"), o)...)
	errs = append(errs, ValidateProfiles(&t.ObjectMeta, &t.Spec, path.Child("spec"))...)
	if len(t.Spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(path.Child("spec", "ephemeralContainers"), "ephemeral containers not allowed in pod template"))
	}
	return errs
}
