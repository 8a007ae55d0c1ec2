package kinds

import (
	"encoding/json"
	"fmt"
	"maps"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
)

// Version v1 of an autoscaler has a field for one metric. It carries what else v2 has in
// annotations, which exist in v1 only.
const (
	v1Metrics    = "autoscaling.alpha.kubernetes.io/metrics"
	v1Statuses   = "autoscaling.alpha.kubernetes.io/current-metrics"
	v1Conditions = "autoscaling.alpha.kubernetes.io/conditions"
	v1Behavior   = "autoscaling.alpha.kubernetes.io/behavior"
)

var v1Annotations = []string{
	v1Metrics, v1Statuses, v1Conditions, v1Behavior,
	"autoscaling.alpha.kubernetes.io/scale-down-tolerance", "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
}

// withoutV1 returns annotations without those of version v1. It changes a copy.
func withoutV1(annotations map[string]string) map[string]string {
	out := annotations
	for _, key := range v1Annotations {
		if _, ok := out[key]; !ok {
			continue
		}
		if len(out) == len(annotations) {
			out = maps.Clone(annotations)
		}
		delete(out, key)
	}
	return out
}

// convertAutoscaler converts between v1 and v2 without loss. It does not change in, but the
// result shares memory with it.
func convertAutoscaler(in runtime.Object, to schema.GroupVersionKind) (runtime.Object, error) {
	switch h := in.(type) {
	case *autoscalingv1.HorizontalPodAutoscaler:
		switch to.GroupVersion() {
		case autoscalingv1.SchemeGroupVersion:
			return h, nil
		case autoscalingv2.SchemeGroupVersion:
			return toV2(h), nil
		}
	case *autoscalingv2.HorizontalPodAutoscaler:
		switch to.GroupVersion() {
		case autoscalingv2.SchemeGroupVersion:
			return h, nil
		case autoscalingv1.SchemeGroupVersion:
			return toV1(h)
		}
	}
	return nil, fmt.Errorf("convert autoscaler: %T cannot become %s", in, to)
}

// isCPUMetric reports whether a metric is the one that v1 has a field for.
func isCPUMetric(m *autoscalingv2.MetricSpec) bool {
	return m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil && m.Resource.Name == corev1.ResourceCPU && m.Resource.Target.AverageUtilization != nil
}

// v1Scaling is a behavior in the annotation: its fields have no JSON names.
type v1Scaling struct{ ScaleUp, ScaleDown *v1ScalingRules }

type v1ScalingRules struct {
	StabilizationWindowSeconds *int32
	SelectPolicy               *autoscalingv2.ScalingPolicySelect
	Policies                   []v1ScalingPolicy
	Tolerance                  *resource.Quantity
}

type v1ScalingPolicy struct {
	Type                 autoscalingv2.HPAScalingPolicyType
	Value, PeriodSeconds int32
}

func toV1Scaling(r *autoscalingv2.HPAScalingRules) *v1ScalingRules {
	if r == nil {
		return nil
	}
	out := &v1ScalingRules{StabilizationWindowSeconds: r.StabilizationWindowSeconds, SelectPolicy: r.SelectPolicy, Tolerance: r.Tolerance}
	if r.Policies != nil {
		out.Policies = make([]v1ScalingPolicy, len(r.Policies))
	}
	for i, p := range r.Policies {
		out.Policies[i] = v1ScalingPolicy{p.Type, p.Value, p.PeriodSeconds}
	}
	return out
}

func toV1(in *autoscalingv2.HorizontalPodAutoscaler) (*autoscalingv1.HorizontalPodAutoscaler, error) {
	out := &autoscalingv1.HorizontalPodAutoscaler{ObjectMeta: in.ObjectMeta}
	out.SetGroupVersionKind(autoscalingv1.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler"))
	out.Spec = autoscalingv1.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv1.CrossVersionObjectReference(in.Spec.ScaleTargetRef), MinReplicas: in.Spec.MinReplicas, MaxReplicas: in.Spec.MaxReplicas,
	}
	out.Status = autoscalingv1.HorizontalPodAutoscalerStatus{
		ObservedGeneration: in.Status.ObservedGeneration, LastScaleTime: in.Status.LastScaleTime,
		CurrentReplicas: in.Status.CurrentReplicas, DesiredReplicas: in.Status.DesiredReplicas,
	}
	var others []autoscalingv1.MetricSpec
	for i := range in.Spec.Metrics {
		m := &in.Spec.Metrics[i]
		switch {
		case !isCPUMetric(m):
			others = append(others, metricToV1(m))
		case out.Spec.TargetCPUUtilizationPercentage == nil:
			out.Spec.TargetCPUUtilizationPercentage = m.Resource.Target.AverageUtilization
		}
	}
	var statuses []autoscalingv1.MetricStatus
	for i := range in.Status.CurrentMetrics {
		s := &in.Status.CurrentMetrics[i]
		statuses = append(statuses, statusToV1(s))
		if r := s.Resource; s.Type == autoscalingv2.ResourceMetricSourceType && r != nil && r.Name == corev1.ResourceCPU && r.Current.AverageUtilization != nil {
			out.Status.CurrentCPUUtilizationPercentage = r.Current.AverageUtilization
		}
	}
	var conditions []autoscalingv1.HorizontalPodAutoscalerCondition
	for _, c := range in.Status.Conditions {
		conditions = append(conditions, autoscalingv1.HorizontalPodAutoscalerCondition{
			Type: autoscalingv1.HorizontalPodAutoscalerConditionType(c.Type), Status: c.Status, LastTransitionTime: c.LastTransitionTime,
			Reason: c.Reason, Message: c.Message, ObservedGeneration: c.ObservedGeneration,
		})
	}
	values := map[string]any{}
	if len(others) > 0 {
		values[v1Metrics] = others
	}
	if len(statuses) > 0 {
		values[v1Statuses] = statuses
	}
	if len(conditions) > 0 {
		values[v1Conditions] = conditions
	}
	if b := in.Spec.Behavior; b != nil {
		values[v1Behavior] = v1Scaling{toV1Scaling(b.ScaleUp), toV1Scaling(b.ScaleDown)}
	}
	var err error
	out.Annotations, err = withV1(withoutV1(in.Annotations), values)
	return out, err
}

// withV1 returns annotations with the values of version v1, in JSON.
func withV1(annotations map[string]string, values map[string]any) (map[string]string, error) {
	if len(values) == 0 {
		return annotations, nil
	}
	all := make(map[string]string, len(annotations)+len(values))
	maps.Copy(all, annotations)
	for key, v := range values {
		data, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		all[key] = string(data)
	}
	return all, nil
}

// decodeV1 reads an annotation of version v1; nil: there is none, or it is malformed, which is
// ignored.
func decodeV1[T any](annotations map[string]string, key string) *T {
	text, ok := annotations[key]
	if !ok {
		return nil
	}
	out := new(T)
	if json.Unmarshal([]byte(text), out) != nil {
		return nil
	}
	return out
}

func toV2(in *autoscalingv1.HorizontalPodAutoscaler) *autoscalingv2.HorizontalPodAutoscaler {
	out := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: in.ObjectMeta}
	out.SetGroupVersionKind(autoscalingv2.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler"))
	out.Spec = autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference(in.Spec.ScaleTargetRef), MinReplicas: in.Spec.MinReplicas, MaxReplicas: in.Spec.MaxReplicas,
	}
	out.Status = autoscalingv2.HorizontalPodAutoscalerStatus{
		ObservedGeneration: in.Status.ObservedGeneration, LastScaleTime: in.Status.LastScaleTime,
		CurrentReplicas: in.Status.CurrentReplicas, DesiredReplicas: in.Status.DesiredReplicas,
	}
	if others := decodeV1[[]autoscalingv1.MetricSpec](in.Annotations, v1Metrics); others != nil {
		for i := range *others {
			out.Spec.Metrics = append(out.Spec.Metrics, metricToV2(&(*others)[i]))
		}
	}
	if percent := in.Spec.TargetCPUUtilizationPercentage; percent != nil {
		out.Spec.Metrics = append(out.Spec.Metrics, cpuMetric(*percent))
	}
	if b := decodeV1[autoscalingv2.HorizontalPodAutoscalerBehavior](in.Annotations, v1Behavior); b != nil && *b != (autoscalingv2.HorizontalPodAutoscalerBehavior{}) {
		out.Spec.Behavior = b
	}
	if percent := in.Status.CurrentCPUUtilizationPercentage; percent != nil {
		out.Status.CurrentMetrics = []autoscalingv2.MetricStatus{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricStatus{
			Name: corev1.ResourceCPU, Current: autoscalingv2.MetricValueStatus{AverageUtilization: new(*percent)},
		}}}
	}
	// The annotation has more than the field.
	if statuses := decodeV1[[]autoscalingv1.MetricStatus](in.Annotations, v1Statuses); statuses != nil {
		out.Status.CurrentMetrics = make([]autoscalingv2.MetricStatus, len(*statuses))
		for i := range *statuses {
			out.Status.CurrentMetrics[i] = statusToV2(&(*statuses)[i])
		}
	}
	if conditions := decodeV1[[]autoscalingv2.HorizontalPodAutoscalerCondition](in.Annotations, v1Conditions); conditions != nil {
		out.Status.Conditions = *conditions
	}
	if len(out.Spec.Metrics) == 0 {
		out.Spec.Metrics = []autoscalingv2.MetricSpec{cpuMetric(defaultUtilization)}
	}
	out.Annotations = withoutV1(in.Annotations)
	return out
}

func metricToV1(m *autoscalingv2.MetricSpec) autoscalingv1.MetricSpec {
	out := autoscalingv1.MetricSpec{Type: autoscalingv1.MetricSourceType(m.Type)}
	if s := m.Object; s != nil {
		out.Object = &autoscalingv1.ObjectMetricSource{
			Target: autoscalingv1.CrossVersionObjectReference(s.DescribedObject), MetricName: s.Metric.Name, Selector: s.Metric.Selector,
			TargetValue: ptr.Deref(s.Target.Value, resource.Quantity{}), AverageValue: s.Target.AverageValue,
		}
	}
	if s := m.Pods; s != nil {
		out.Pods = &autoscalingv1.PodsMetricSource{
			MetricName: s.Metric.Name, Selector: s.Metric.Selector, TargetAverageValue: ptr.Deref(s.Target.AverageValue, resource.Quantity{}),
		}
	}
	if s := m.Resource; s != nil {
		out.Resource = &autoscalingv1.ResourceMetricSource{
			Name: s.Name, TargetAverageUtilization: s.Target.AverageUtilization, TargetAverageValue: s.Target.AverageValue,
		}
	}
	if s := m.ContainerResource; s != nil {
		out.ContainerResource = &autoscalingv1.ContainerResourceMetricSource{
			Name: s.Name, Container: s.Container, TargetAverageUtilization: s.Target.AverageUtilization, TargetAverageValue: s.Target.AverageValue,
		}
	}
	if s := m.External; s != nil {
		out.External = &autoscalingv1.ExternalMetricSource{
			MetricName: s.Metric.Name, MetricSelector: s.Metric.Selector, TargetValue: s.Target.Value, TargetAverageValue: s.Target.AverageValue,
		}
	}
	return out
}

// metricToV2 derives the types of targets from the values that v1 has.
func metricToV2(m *autoscalingv1.MetricSpec) autoscalingv2.MetricSpec {
	out := autoscalingv2.MetricSpec{Type: autoscalingv2.MetricSourceType(m.Type)}
	typeOf := func(set bool, t autoscalingv2.MetricTargetType) autoscalingv2.MetricTargetType {
		if set {
			return t
		}
		return autoscalingv2.AverageValueMetricType
	}
	resourceTarget := func(percent *int32, value *resource.Quantity) autoscalingv2.MetricTarget {
		return autoscalingv2.MetricTarget{Type: typeOf(percent != nil, autoscalingv2.UtilizationMetricType), AverageValue: value, AverageUtilization: percent}
	}
	if s := m.Object; s != nil {
		target := autoscalingv2.MetricTarget{Type: typeOf(s.AverageValue == nil, autoscalingv2.ValueMetricType), AverageValue: s.AverageValue}
		// Version v1 cannot omit the value: 0 beside an average is none.
		if s.AverageValue == nil || !s.TargetValue.IsZero() {
			target.Value = &s.TargetValue
		}
		out.Object = &autoscalingv2.ObjectMetricSource{
			DescribedObject: autoscalingv2.CrossVersionObjectReference(s.Target), Target: target,
			Metric: autoscalingv2.MetricIdentifier{Name: s.MetricName, Selector: s.Selector},
		}
	}
	if s := m.Pods; s != nil {
		out.Pods = &autoscalingv2.PodsMetricSource{
			Metric: autoscalingv2.MetricIdentifier{Name: s.MetricName, Selector: s.Selector},
			Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: &s.TargetAverageValue},
		}
	}
	if s := m.Resource; s != nil {
		out.Resource = &autoscalingv2.ResourceMetricSource{Name: s.Name, Target: resourceTarget(s.TargetAverageUtilization, s.TargetAverageValue)}
	}
	if s := m.ContainerResource; s != nil {
		out.ContainerResource = &autoscalingv2.ContainerResourceMetricSource{
			Name: s.Name, Container: s.Container, Target: resourceTarget(s.TargetAverageUtilization, s.TargetAverageValue),
		}
	}
	if s := m.External; s != nil {
		out.External = &autoscalingv2.ExternalMetricSource{
			Metric: autoscalingv2.MetricIdentifier{Name: s.MetricName, Selector: s.MetricSelector},
			Target: autoscalingv2.MetricTarget{
				Type: typeOf(s.TargetValue != nil, autoscalingv2.ValueMetricType), Value: s.TargetValue, AverageValue: s.TargetAverageValue,
			},
		}
	}
	return out
}

func statusToV1(m *autoscalingv2.MetricStatus) autoscalingv1.MetricStatus {
	out := autoscalingv1.MetricStatus{Type: autoscalingv1.MetricSourceType(m.Type)}
	value := func(q *resource.Quantity) resource.Quantity { return ptr.Deref(q, resource.Quantity{}) }
	if s := m.Object; s != nil {
		out.Object = &autoscalingv1.ObjectMetricStatus{
			Target: autoscalingv1.CrossVersionObjectReference(s.DescribedObject), MetricName: s.Metric.Name, Selector: s.Metric.Selector,
			CurrentValue: value(s.Current.Value), AverageValue: s.Current.AverageValue,
		}
	}
	if s := m.Pods; s != nil {
		out.Pods = &autoscalingv1.PodsMetricStatus{MetricName: s.Metric.Name, Selector: s.Metric.Selector, CurrentAverageValue: value(s.Current.AverageValue)}
	}
	if s := m.Resource; s != nil {
		out.Resource = &autoscalingv1.ResourceMetricStatus{
			Name: s.Name, CurrentAverageUtilization: s.Current.AverageUtilization, CurrentAverageValue: value(s.Current.AverageValue),
		}
	}
	if s := m.ContainerResource; s != nil {
		out.ContainerResource = &autoscalingv1.ContainerResourceMetricStatus{
			Name: s.Name, Container: s.Container, CurrentAverageUtilization: s.Current.AverageUtilization, CurrentAverageValue: value(s.Current.AverageValue),
		}
	}
	if s := m.External; s != nil {
		out.External = &autoscalingv1.ExternalMetricStatus{
			MetricName: s.Metric.Name, MetricSelector: s.Metric.Selector, CurrentValue: value(s.Current.Value), CurrentAverageValue: s.Current.AverageValue,
		}
	}
	return out
}

func statusToV2(m *autoscalingv1.MetricStatus) autoscalingv2.MetricStatus {
	out := autoscalingv2.MetricStatus{Type: autoscalingv2.MetricSourceType(m.Type)}
	if s := m.Object; s != nil {
		out.Object = &autoscalingv2.ObjectMetricStatus{
			DescribedObject: autoscalingv2.CrossVersionObjectReference(s.Target),
			Metric:          autoscalingv2.MetricIdentifier{Name: s.MetricName, Selector: s.Selector},
			Current:         autoscalingv2.MetricValueStatus{Value: &s.CurrentValue, AverageValue: s.AverageValue},
		}
	}
	if s := m.Pods; s != nil {
		out.Pods = &autoscalingv2.PodsMetricStatus{
			Metric:  autoscalingv2.MetricIdentifier{Name: s.MetricName, Selector: s.Selector},
			Current: autoscalingv2.MetricValueStatus{AverageValue: &s.CurrentAverageValue},
		}
	}
	if s := m.Resource; s != nil {
		out.Resource = &autoscalingv2.ResourceMetricStatus{
			Name: s.Name, Current: autoscalingv2.MetricValueStatus{AverageValue: &s.CurrentAverageValue, AverageUtilization: s.CurrentAverageUtilization},
		}
	}
	if s := m.ContainerResource; s != nil {
		out.ContainerResource = &autoscalingv2.ContainerResourceMetricStatus{
			Name: s.Name, Container: s.Container,
			Current: autoscalingv2.MetricValueStatus{AverageValue: &s.CurrentAverageValue, AverageUtilization: s.CurrentAverageUtilization},
		}
	}
	if s := m.External; s != nil {
		out.External = &autoscalingv2.ExternalMetricStatus{
			Metric:  autoscalingv2.MetricIdentifier{Name: s.MetricName, Selector: s.MetricSelector},
			Current: autoscalingv2.MetricValueStatus{Value: &s.CurrentValue, AverageValue: s.CurrentAverageValue},
		}
	}
	return out
}
