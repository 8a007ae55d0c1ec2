package kinds

import (
	"fmt"
	"slices"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/rules"
)

// Limits of an autoscaler, in seconds.
const (
	maxScalingPeriod       = 1800
	maxStabilizationWindow = 3600
)

var metricSourceTypes = []autoscalingv2.MetricSourceType{
	autoscalingv2.ContainerResourceMetricSourceType, autoscalingv2.ExternalMetricSourceType, autoscalingv2.ObjectMetricSourceType,
	autoscalingv2.PodsMetricSourceType, autoscalingv2.ResourceMetricSourceType,
}

func validateAutoscaler(h *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	ref := h.Spec.ScaleTargetRef
	// ReplicationController is the only kind of the core group that can be scaled.
	return validateAutoscalerSpec(&h.Spec, apiVersionError(ref.APIVersion, ref.Kind == "ReplicationController"), false)
}

func validateAutoscalerUpdate(h, old *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	ref, was := h.Spec.ScaleTargetRef, old.Spec.ScaleTargetRef
	var versionErr error
	if ref.APIVersion != was.APIVersion || ref.Kind != was.Kind {
		versionErr = apiVersionError(ref.APIVersion, ref.Kind == "ReplicationController")
	}
	// Metrics of which one has an invalid version already may have others.
	lax := slices.ContainsFunc(old.Spec.Metrics, func(m autoscalingv2.MetricSpec) bool {
		return m.Type == autoscalingv2.ObjectMetricSourceType && m.Object != nil && apiVersionError(m.Object.DescribedObject.APIVersion, true) != nil
	})
	return validateAutoscalerSpec(&h.Spec, versionErr, lax)
}

// apiVersionError returns what is wrong with the version of a reference. core permits the core
// group.
func apiVersionError(version string, core bool) error {
	gv, err := schema.ParseGroupVersion(version)
	if err == nil && gv.Group == "" && !core {
		return fmt.Errorf("apiVersion must specify API group")
	}
	return err
}

// validateAutoscalerSpec validates a spec. versionErr is the error of the version of the target,
// and lax permits invalid versions of the objects that metrics describe.
func validateAutoscalerSpec(spec *autoscalingv2.HorizontalPodAutoscalerSpec, versionErr error, lax bool) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec")
	if least := spec.MinReplicas; least != nil {
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(*least), path.Child("minReplicas"))...)
		if spec.MaxReplicas < *least {
			errs = append(errs, field.Invalid(path.Child("maxReplicas"), spec.MaxReplicas, "must be greater than or equal to `minReplicas`"))
		}
	}
	switch {
	case spec.MaxReplicas == 0:
		errs = append(errs, field.Required(path.Child("maxReplicas"), ""))
	case spec.MaxReplicas < 0:
		errs = append(errs, field.Invalid(path.Child("maxReplicas"), spec.MaxReplicas, "must be greater than or equal to 1"))
	}
	errs = append(errs, validateCrossReference(&spec.ScaleTargetRef, versionErr, path.Child("scaleTargetRef"))...)
	needed := spec.MinReplicas != nil && *spec.MinReplicas == 0
	for i := range spec.Metrics {
		m := &spec.Metrics[i]
		needed = needed && m.Type != autoscalingv2.ObjectMetricSourceType && m.Type != autoscalingv2.ExternalMetricSourceType
		errs = append(errs, validateMetric(m, lax, path.Child("metrics").Index(i))...)
	}
	if needed {
		errs = append(errs, field.Forbidden(path.Child("metrics"), "must specify at least one Object or External metric to support scaling to zero replicas"))
	}
	if b := spec.Behavior; b != nil {
		errs = append(errs, validateScaling(b.ScaleUp, path.Child("behavior", "scaleUp"))...)
		errs = append(errs, validateScaling(b.ScaleDown, path.Child("behavior", "scaleDown"))...)
	}
	return errs
}

func validateCrossReference(ref *autoscalingv2.CrossVersionObjectReference, versionErr error, path *field.Path) field.ErrorList {
	errs := append(rules.PathSegment(ref.Kind, path.Child("kind")), rules.PathSegment(ref.Name, path.Child("name"))...)
	if versionErr != nil {
		errs = append(errs, field.Invalid(path.Child("apiVersion"), ref.APIVersion, versionErr.Error()))
	}
	return errs
}

func validateScaling(r *autoscalingv2.HPAScalingRules, path *field.Path) field.ErrorList {
	if r == nil {
		return nil
	}
	var errs field.ErrorList
	refuse := func(bad bool, at *field.Path, value any, message string) {
		if bad {
			errs = append(errs, field.Invalid(at, value, message))
		}
	}
	if window, at := r.StabilizationWindowSeconds, path.Child("stabilizationWindowSeconds"); window != nil {
		refuse(*window < 0, at, window, "must be greater than or equal to zero")
		refuse(*window > maxStabilizationWindow, at, window, fmt.Sprintf("must be less than or equal to %d", maxStabilizationWindow))
	}
	if r.SelectPolicy != nil {
		errs = append(errs, rules.Supported(*r.SelectPolicy, path.Child("selectPolicy"),
			autoscalingv2.DisabledPolicySelect, autoscalingv2.MaxChangePolicySelect, autoscalingv2.MinChangePolicySelect)...)
	}
	if len(r.Policies) == 0 {
		errs = append(errs, field.Required(path.Child("policies"), "must specify at least one Policy"))
	}
	for i, p := range r.Policies {
		at := path.Child("policies").Index(i)
		errs = append(errs, rules.Supported(p.Type, at.Child("type"), autoscalingv2.PercentScalingPolicy, autoscalingv2.PodsScalingPolicy)...)
		refuse(p.Value <= 0, at.Child("value"), p.Value, "must be greater than zero")
		refuse(p.PeriodSeconds <= 0, at.Child("periodSeconds"), p.PeriodSeconds, "must be greater than zero")
		refuse(p.PeriodSeconds > maxScalingPeriod, at.Child("periodSeconds"), p.PeriodSeconds, fmt.Sprintf("must be less than or equal to %d", maxScalingPeriod))
	}
	if t := r.Tolerance; t != nil {
		refuse(t.Sign() < 0, path.Child("tolerance"), t.String(), apivalidation.IsNegativeErrorMsg)
	}
	return errs
}

// metricSource is one of the five sources of a metric.
type metricSource struct {
	kind  autoscalingv2.MetricSourceType
	field string
	set   bool
	check func(path *field.Path) field.ErrorList
}

func metricSources(m *autoscalingv2.MetricSpec, lax bool) []metricSource {
	return []metricSource{
		{autoscalingv2.ObjectMetricSourceType, "object", m.Object != nil, func(path *field.Path) field.ErrorList { return validateObjectMetric(m.Object, lax, path) }},
		{autoscalingv2.ExternalMetricSourceType, "external", m.External != nil, func(path *field.Path) field.ErrorList {
			t := &m.External.Target
			errs := append(validateMetricName(m.External.Metric.Name, path), validateTarget(t, path.Child("target"))...)
			return append(errs, oneTarget(t.AverageValue != nil, t.Value != nil, path.Child("target"), "averageValue", "value",
				"must set either a target value for metric or a per-pod target", "may not set both a target value for metric and a per-pod target")...)
		}},
		{autoscalingv2.PodsMetricSourceType, "pods", m.Pods != nil, func(path *field.Path) field.ErrorList {
			errs := append(validateMetricName(m.Pods.Metric.Name, path), validateTarget(&m.Pods.Target, path.Child("target"))...)
			if m.Pods.Target.AverageValue == nil {
				errs = append(errs, field.Required(path.Child("target", "averageValue"), "must specify a positive target averageValue"))
			}
			return errs
		}},
		{autoscalingv2.ResourceMetricSourceType, "resource", m.Resource != nil, func(path *field.Path) field.ErrorList {
			errs := validateResourceTarget(&m.Resource.Target, path.Child("target"))
			if m.Resource.Name == "" {
				errs = append(errs, field.Required(path.Child("name"), "must specify a resource name"))
			}
			return errs
		}},
		{autoscalingv2.ContainerResourceMetricSourceType, "containerResource", m.ContainerResource != nil, func(path *field.Path) field.ErrorList {
			return validateContainerMetric(m.ContainerResource, path)
		}},
	}
}

// validateMetric requires the source of the type alone. Only the first source is validated.
func validateMetric(m *autoscalingv2.MetricSpec, lax bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if m.Type == "" {
		errs = append(errs, field.Required(path.Child("type"), "must specify a metric source type"))
	}
	errs = append(errs, rules.Supported(m.Type, path.Child("type"), metricSourceTypes...)...)
	sources := metricSources(m, lax)
	set := slices.DeleteFunc(slices.Clone(sources), func(s metricSource) bool { return !s.set })
	if len(set) > 0 {
		errs = append(errs, set[0].check(path.Child(set[0].field))...)
	}
	for _, s := range sources {
		if s.kind == m.Type && !s.set {
			errs = append(errs, field.Required(path.Child(s.field), "must populate information for the given metric source"))
		}
		if s.kind != m.Type && s.set && len(set) > 1 {
			errs = append(errs, field.Forbidden(path.Child(s.field), "must populate the given metric source only"))
		}
	}
	return errs
}

func validateObjectMetric(src *autoscalingv2.ObjectMetricSource, lax bool, path *field.Path) field.ErrorList {
	var versionErr error
	if !lax {
		versionErr = apiVersionError(src.DescribedObject.APIVersion, true)
	}
	errs := validateCrossReference(&src.DescribedObject, versionErr, path.Child("describedObject"))
	errs = append(errs, validateMetricName(src.Metric.Name, path)...)
	errs = append(errs, validateTarget(&src.Target, path.Child("target"))...)
	if src.Target.Value == nil && src.Target.AverageValue == nil {
		errs = append(errs, field.Required(path.Child("target", "averageValue"), "must set either a target value or averageValue"))
	}
	return errs
}

func validateContainerMetric(src *autoscalingv2.ContainerResourceMetricSource, path *field.Path) field.ErrorList {
	errs := validateResourceTarget(&src.Target, path.Child("target"))
	if src.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), "must specify a resource name"))
	} else {
		errs = append(errs, rules.ContainerResourceName(src.Name, path.Child("name"))...)
	}
	if src.Container == "" {
		return append(errs, field.Required(path.Child("container"), "must specify a container"))
	}
	return append(errs, rules.DNSLabel(src.Container, path.Child("container"))...)
}

func validateMetricName(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path.Child("metric", "name"), "must specify a metric name")}
	}
	return rules.PathSegment(name, path.Child("metric", "name"))
}

func validateResourceTarget(t *autoscalingv2.MetricTarget, path *field.Path) field.ErrorList {
	return append(validateTarget(t, path), oneTarget(t.AverageUtilization != nil, t.AverageValue != nil, path, "averageUtilization", "averageValue",
		"must set either a target raw value or a target utilization", "may not set both a target raw value and a target utilization")...)
}

// oneTarget requires one of two fields: the first is reported if none is set, and the second if
// both are.
func oneTarget(first, second bool, path *field.Path, firstName, secondName, neither, both string) field.ErrorList {
	switch {
	case first && second:
		return field.ErrorList{field.Forbidden(path.Child(secondName), both)}
	case !first && !second:
		return field.ErrorList{field.Required(path.Child(firstName), neither)}
	}
	return nil
}

func validateTarget(t *autoscalingv2.MetricTarget, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if t.Type == "" {
		errs = append(errs, field.Required(path.Child("type"), "must specify a metric target type"))
	}
	if t.Type != autoscalingv2.UtilizationMetricType && t.Type != autoscalingv2.ValueMetricType && t.Type != autoscalingv2.AverageValueMetricType {
		errs = append(errs, field.Invalid(path.Child("type"), t.Type, "must be either Utilization, Value, or AverageValue"))
	}
	for name, q := range map[string]*resource.Quantity{"value": t.Value, "averageValue": t.AverageValue} {
		if q != nil && q.Sign() != 1 {
			errs = append(errs, field.Invalid(path.Child(name), q, "must be positive"))
		}
	}
	if n := t.AverageUtilization; n != nil && *n < 1 {
		errs = append(errs, field.Invalid(path.Child("averageUtilization"), n, "must be greater than 0"))
	}
	return errs
}

func validateAutoscalerStatus(h *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	path := field.NewPath("status")
	errs := apivalidation.ValidateNonnegativeField(int64(h.Status.CurrentReplicas), path.Child("currentReplicas"))
	errs = append(errs, apivalidation.ValidateNonnegativeField(int64(h.Status.DesiredReplicas), path.Child("desiredReplicas"))...)
	for i, c := range h.Status.Conditions {
		errs = append(errs, nonNegative(c.ObservedGeneration, path.Child("conditions").Index(i).Child("observedGeneration"))...)
	}
	return errs
}
