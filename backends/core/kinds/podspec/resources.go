package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateResources returns the errors of the resources of the whole pod.
func validateResources(spec *corev1.PodSpec, path *field.Path, o Options) field.ErrorList {
	return nil
}
