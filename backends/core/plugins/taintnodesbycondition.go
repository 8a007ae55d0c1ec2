package plugins

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"portico/resource/rest"
)

// newTaintNodesByCondition taints new nodes as not ready, until a controller of nodes sees that
// they are.
func newTaintNodesByCondition(*Config) (rest.Admission, error) {
	taint := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	return mutates(func(_ context.Context, a *rest.Attributes) error {
		node, ok := written[*corev1.Node](a)
		if ok && a.Operation == rest.Create && !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) }) {
			node.Spec.Taints = append(node.Spec.Taints, taint)
		}
		return nil
	}), nil
}
