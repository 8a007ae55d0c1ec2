package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateNetwork returns the errors of DNS, host aliases and host network.
func validateNetwork(spec *corev1.PodSpec, path *field.Path, o Options) field.ErrorList {
	return nil
}
