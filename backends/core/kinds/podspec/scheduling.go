package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateScheduling returns the errors of the fields that the scheduler reads.
func validateScheduling(spec *corev1.PodSpec, path *field.Path, o Options) field.ErrorList {
	return nil
}
