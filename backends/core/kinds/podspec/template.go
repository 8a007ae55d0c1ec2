package podspec

import (
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	unversionedvalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func validateTemplateMeta(t *corev1.PodTemplateSpec, path *field.Path, o Options) field.ErrorList {
	errs := unversionedvalidation.ValidateLabels(t.Labels, path.Child("labels"))
	errs = append(errs, apivalidation.ValidateAnnotations(t.Annotations, path.Child("annotations"))...)
	return append(errs, ValidateAnnotations(t.Annotations, &t.Spec, path.Child("annotations"), o)...)
}

// ValidateAnnotations returns the errors of the annotations that have a meaning for pods.
func ValidateAnnotations(annotations map[string]string, spec *corev1.PodSpec, path *field.Path, o Options) field.ErrorList {
	return nil
}
