package kinds

import (
	"fmt"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"portico/backends/core/kinds/rules"
	"portico/resource"
	"portico/resource/rest"
)

// defaultUtilization is the target of an autoscaler without metrics, in percent of the
// requested CPU.
const defaultUtilization = 80

// horizontalPodAutoscalers is the row of autoscaling/v2 HorizontalPodAutoscaler, the stored
// form, and of autoscaling/v1. horizontalpodautoscaler_validation.go has the rules, and
// horizontalpodautoscaler_v1.go the conversion.
func horizontalPodAutoscalers(scheme *runtime.Scheme) *rest.Kind {
	return &rest.Kind{
		Info: resource.Info{
			Group: autoscalingv2.GroupName, Versions: []string{"v2", "v1"}, Resource: "horizontalpodautoscalers", Kind: "HorizontalPodAutoscaler",
			ShortNames: []string{"hpa"}, Categories: []string{"all"}, Namespaced: true,
		},
		Codec: rest.TypedConverted(scheme, autoscalingv2.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler"), convertAutoscaler),
		Strategy: rest.Strategy{
			Default:         onDefault(defaultAutoscaler),
			TrackGeneration: true,
			PrepareCreate: onCreate(func(h *autoscalingv2.HorizontalPodAutoscaler) {
				h.Status = autoscalingv2.HorizontalPodAutoscalerStatus{}
			}),
			PrepareUpdate:  onUpdate(func(h, old *autoscalingv2.HorizontalPodAutoscaler) { old.Status.DeepCopyInto(&h.Status) }),
			Validate:       check(validateAutoscaler),
			ValidateUpdate: checkUpdate(validateAutoscalerUpdate),
		},
		Subresources: []rest.Subresource{{Name: "status", Strategy: &rest.Strategy{
			PrepareUpdate:  onUpdate(func(h, old *autoscalingv2.HorizontalPodAutoscaler) { old.Spec.DeepCopyInto(&h.Spec) }),
			ValidateUpdate: checkNew(validateAutoscalerStatus),
		}}},
		Columns: []metav1.TableColumnDefinition{
			nameColumn(),
			column("Reference", "string", "The object that is scaled."),
			column("Targets", "string", "The current and the wanted values of the metrics."),
			column("MinPods", "string", "The least number of pods."),
			column("MaxPods", "string", "The greatest number of pods."),
			column("Replicas", "string", "The current number of pods."),
			ageColumn(),
		},
		Cells:               cells(autoscalerCells),
		UnconditionalUpdate: true,
	}
}

func defaultAutoscaler(h *autoscalingv2.HorizontalPodAutoscaler) {
	h.Annotations = withoutV1(h.Annotations)
	rules.Default(&h.Spec.MinReplicas, 1)
	if len(h.Spec.Metrics) == 0 {
		h.Spec.Metrics = []autoscalingv2.MetricSpec{cpuMetric(defaultUtilization)}
	}
	if b := h.Spec.Behavior; b != nil {
		all := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15}
		four := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: 15}
		defaultScaling(&b.ScaleUp, four, all)
		rules.Default(&b.ScaleUp.StabilizationWindowSeconds, 0)
		defaultScaling(&b.ScaleDown, all)
	}
}

func defaultScaling(to **autoscalingv2.HPAScalingRules, policies ...autoscalingv2.HPAScalingPolicy) {
	rules.Default(to, autoscalingv2.HPAScalingRules{})
	r := *to
	rules.Default(&r.SelectPolicy, autoscalingv2.MaxChangePolicySelect)
	if r.Policies == nil {
		r.Policies = policies
	}
}

// cpuMetric returns the metric of version v1, a percentage of the requested CPU.
func cpuMetric(percent int32) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
		Name:   corev1.ResourceCPU,
		Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent},
	}}
}

func autoscalerCells(h *autoscalingv2.HorizontalPodAutoscaler) []any {
	least := unset
	if n := h.Spec.MinReplicas; n != nil {
		least = fmt.Sprint(*n)
	}
	var targets []string
	for i := range h.Spec.Metrics {
		var status autoscalingv2.MetricStatus
		if i < len(h.Status.CurrentMetrics) {
			status = h.Status.CurrentMetrics[i]
		}
		targets = append(targets, metricText(&h.Spec.Metrics[i], &status))
	}
	return []any{
		h.Name, h.Spec.ScaleTargetRef.Kind + "/" + h.Spec.ScaleTargetRef.Name, metricList(targets), least,
		int64(h.Spec.MaxReplicas), int64(h.Status.CurrentReplicas), age(h.CreationTimestamp),
	}
}

func metricList(all []string) string {
	const most = 2
	switch n := len(all); n {
	case 0:
		return none
	case 1:
		return all[0]
	case most:
		return all[0] + ", " + all[1]
	default:
		return fmt.Sprintf("%s, %s + %d more...", all[0], all[1], n-most)
	}
}

// metricText returns the current value of a metric and its target.
func metricText(spec *autoscalingv2.MetricSpec, status *autoscalingv2.MetricStatus) string {
	const utilization, absolute = true, false
	switch t := spec.Type; {
	case t == autoscalingv2.ExternalMetricSourceType && spec.External != nil:
		return valueText("", absolute, &spec.External.Target, current(status.External, func(s *autoscalingv2.ExternalMetricStatus) *autoscalingv2.MetricValueStatus { return &s.Current }))
	case t == autoscalingv2.ObjectMetricSourceType && spec.Object != nil:
		return valueText("", absolute, &spec.Object.Target, current(status.Object, func(s *autoscalingv2.ObjectMetricStatus) *autoscalingv2.MetricValueStatus { return &s.Current }))
	case t == autoscalingv2.PodsMetricSourceType && spec.Pods != nil:
		now := unknown
		if status.Pods != nil {
			now = status.Pods.Current.AverageValue.String()
		}
		return now + "/" + spec.Pods.Target.AverageValue.String()
	case t == autoscalingv2.ResourceMetricSourceType && spec.Resource != nil:
		return valueText(string(spec.Resource.Name)+": ", utilization, &spec.Resource.Target,
			current(status.Resource, func(s *autoscalingv2.ResourceMetricStatus) *autoscalingv2.MetricValueStatus { return &s.Current }))
	case t == autoscalingv2.ContainerResourceMetricSourceType && spec.ContainerResource != nil:
		return valueText(string(spec.ContainerResource.Name)+": ", utilization, &spec.ContainerResource.Target,
			current(status.ContainerResource, func(s *autoscalingv2.ContainerResourceMetricStatus) *autoscalingv2.MetricValueStatus {
				return &s.Current
			}))
	}
	return "<unknown type>"
}

// current returns the value in a status that may be nil.
func current[T any](status *T, value func(*T) *autoscalingv2.MetricValueStatus) *autoscalingv2.MetricValueStatus {
	if status == nil {
		return nil
	}
	return value(status)
}

func valueText(prefix string, utilization bool, target *autoscalingv2.MetricTarget, value *autoscalingv2.MetricValueStatus) string {
	now := unknown
	switch {
	case target.AverageValue != nil:
		if value != nil && (utilization || value.AverageValue != nil) {
			now = value.AverageValue.String()
		}
		text := prefix + now + "/" + target.AverageValue.String()
		if !utilization {
			text += " (avg)"
		}
		return text
	case utilization:
		wanted := "<auto>"
		if target.AverageUtilization != nil {
			wanted = fmt.Sprintf("%d%%", *target.AverageUtilization)
		}
		if value != nil && value.AverageUtilization != nil {
			now = fmt.Sprintf("%d%%", *value.AverageUtilization)
		}
		return prefix + now + "/" + wanted
	default:
		if value != nil {
			now = value.Value.String()
		}
		return now + "/" + target.Value.String()
	}
}
