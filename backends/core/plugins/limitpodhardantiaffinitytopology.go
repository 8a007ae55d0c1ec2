package plugins

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"portico/resource/rest"
)

// newLimitPodHardAntiAffinityTopology rejects pods that require to be apart by more than nodes.
func newLimitPodHardAntiAffinityTopology(*Config) (rest.Admission, error) {
	return validates(func(_ context.Context, a *rest.Attributes) error {
		pod := podOf(a)
		if pod == nil || pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAntiAffinity == nil {
			return nil
		}
		for _, term := range pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			if term.TopologyKey != corev1.LabelHostname {
				return forbidden(a, fmt.Errorf("affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey %v but only key %v is allowed", term.TopologyKey, corev1.LabelHostname))
			}
		}
		return nil
	}), nil
}
