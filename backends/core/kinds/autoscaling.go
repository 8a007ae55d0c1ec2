package kinds

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/kubernetes/pkg/registry/autoscaling/horizontalpodautoscaler"
)

// autoscalingRows are the resources of autoscaling.
func autoscalingRows() []row {
	info := inAll(namespaced(autoscalingv2.GroupName, "horizontalpodautoscalers", "HorizontalPodAutoscaler", "hpa"))
	info.Versions = []string{"v2", "v1"}
	return []row{{Info: info, strategy: horizontalpodautoscaler.Strategy, status: horizontalpodautoscaler.StatusStrategy}}
}
