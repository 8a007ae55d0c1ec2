package plugins

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"k8s.io/kubernetes/pkg/apis/core/v1/helper"

	"portico/backends/core/kinds/podspec"
	"portico/resource/rest"
)

// newExtendedResourceToleration adds a toleration for each extended resource that a pod requests,
// so that nodes with such a resource can be tainted for it.
func newExtendedResourceToleration(*Config) (rest.Admission, error) {
	return mutates(func(_ context.Context, a *rest.Attributes) error {
		pod := podOf(a)
		if pod == nil {
			return nil
		}
		names := sets.New[string]()
		for c := range podspec.Containers(&pod.Spec) {
			for name := range c.Resources.Requests {
				if !c.Ephemeral && helper.IsExtendedResourceName(name) {
					names.Insert(string(name))
				}
			}
		}
		for _, name := range sets.List(names) {
			setToleration(&pod.Spec, corev1.Toleration{Key: name, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})
		}
		return nil
	}), nil
}

// setToleration adds a toleration, or replaces those of its key, effect, operator and value.
func setToleration(spec *corev1.PodSpec, t corev1.Toleration) {
	found := false
	spec.Tolerations = slices.Clone(spec.Tolerations)
	for i := range spec.Tolerations {
		if t.MatchToleration(&spec.Tolerations[i]) {
			spec.Tolerations[i], found = t, true
		}
	}
	if !found {
		spec.Tolerations = append(spec.Tolerations, t)
	}
}
