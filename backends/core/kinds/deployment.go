package kinds

import (
	"cmp"
	"fmt"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"portico/backends/core/kinds/rules"
	"portico/resource"
	"portico/resource/rest"
)

// deployments is the row of apps/v1 Deployment.
func deployments() *rest.Kind {
	info := resource.Info{
		Group: appsv1.GroupName, Versions: []string{"v1"}, Resource: "deployments", Kind: "Deployment",
		ShortNames: []string{"deploy"}, Categories: []string{"all"}, Namespaced: true,
	}
	w := &workload[*appsv1.Deployment, appsv1.DeploymentSpec, appsv1.DeploymentStatus]{
		spec:           func(d *appsv1.Deployment) *appsv1.DeploymentSpec { return &d.Spec },
		status:         func(d *appsv1.Deployment) *appsv1.DeploymentStatus { return &d.Status },
		template:       func(d *appsv1.Deployment) *corev1.PodTemplateSpec { return &d.Spec.Template },
		defaults:       defaultDeployment,
		validate:       validateDeployment,
		validateStatus: validateDeploymentStatus,
		keep:           func(d, old *appsv1.Deployment) { d.Labels = maps.Clone(old.Labels) },
		// Annotations are copied to the ReplicaSets.
		changed: func(d, old *appsv1.Deployment) bool {
			return !equality.Semantic.DeepEqual(d.Annotations, old.Annotations)
		},
		named: true,
	}
	status := w.statusSubresource()
	status.Strategy.Resets = []string{"metadata.labels", "spec"}
	return &rest.Kind{
		Info:     info,
		Strategy: w.strategy(),
		Subresources: []rest.Subresource{
			scale(&info, func(d *appsv1.Deployment) **int32 { return &d.Spec.Replicas },
				func(d *appsv1.Deployment) (int32, labels.Selector, error) {
					return selected(d.Status.Replicas, d.Spec.Selector)
				}),
			status,
		},
		Columns: append([]metav1.TableColumnDefinition{
			nameColumn(),
			column("Ready", "string", "The ready and the desired pods."),
			column("Up-to-date", "string", "The pods that have the template."),
			column("Available", "string", "The pods that have been ready for minReadySeconds."),
			ageColumn(),
		}, podColumns()...),
		Cells: cells(func(d *appsv1.Deployment) []any {
			names, images := containerCells(d.Spec.Template.Spec.Containers)
			selector := "<invalid>"
			if s, err := metav1.LabelSelectorAsSelector(d.Spec.Selector); err == nil {
				selector = s.String()
			}
			ready := fmt.Sprintf("%d/%d", d.Status.ReadyReplicas, ptr.Deref(d.Spec.Replicas, 0))
			return []any{d.Name, ready, int64(d.Status.UpdatedReplicas), int64(d.Status.AvailableReplicas), age(d.CreationTimestamp), names, images, selector}
		}),
		UnconditionalUpdate: true,
	}
}

func defaultDeployment(d *appsv1.Deployment) {
	rules.Default(&d.Spec.Replicas, 1)
	rules.Default(&d.Spec.RevisionHistoryLimit, 10)
	rules.Default(&d.Spec.ProgressDeadlineSeconds, 600)
	s := &d.Spec.Strategy
	s.Type = cmp.Or(s.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if s.Type == appsv1.RollingUpdateDeploymentStrategyType {
		rules.Default(&s.RollingUpdate, appsv1.RollingUpdateDeployment{})
		rules.Default(&s.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
		rules.Default(&s.RollingUpdate.MaxSurge, intstr.FromString("25%"))
	}
}

func validateDeployment(d, old *appsv1.Deployment) field.ErrorList {
	spec, path := &d.Spec, field.NewPath("spec")
	var oldTemplate *corev1.PodTemplateSpec
	if old != nil {
		oldTemplate = &old.Spec.Template
	}
	errs := nonNegative(spec.Replicas, path.Child("replicas"))
	errs = append(errs, validateReplicated(spec.Selector, &spec.Template, oldTemplate, path)...)
	errs = append(errs, validateDeploymentStrategy(&spec.Strategy, path.Child("strategy"))...)
	errs = append(errs, nonNegative(&spec.MinReadySeconds, path.Child("minReadySeconds"))...)
	errs = append(errs, nonNegative(spec.RevisionHistoryLimit, path.Child("revisionHistoryLimit"))...)
	if deadline := spec.ProgressDeadlineSeconds; deadline != nil {
		errs = append(errs, nonNegative(deadline, path.Child("progressDeadlineSeconds"))...)
		if *deadline <= spec.MinReadySeconds {
			errs = append(errs, field.Invalid(path.Child("progressDeadlineSeconds"), *deadline, "must be greater than minReadySeconds"))
		}
	}
	if old != nil {
		errs = append(errs, apivalidation.ValidateImmutableField(spec.Selector, old.Spec.Selector, path.Child("selector"))...)
	}
	return errs
}

// validateReplicated returns the errors of the selector and the template in the spec of a
// Deployment or ReplicaSet.
func validateReplicated(s *metav1.LabelSelector, t, old *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	selector, ok, errs := validatePodSelector(s, "deployment", path.Child("selector"))
	if !ok {
		return append(errs, field.Invalid(path.Child("selector"), s, "invalid label selector"))
	}
	return append(errs, validatePods(t, old, selector, "ReplicaSet", path.Child("template"))...)
}

func validateDeploymentStrategy(s *appsv1.DeploymentStrategy, path *field.Path) field.ErrorList {
	rolling := path.Child("rollingUpdate")
	switch s.Type {
	case appsv1.RecreateDeploymentStrategyType:
		if s.RollingUpdate != nil {
			return field.ErrorList{field.Forbidden(rolling, "may not be specified when strategy `type` is 'Recreate'")}
		}
		return nil
	case appsv1.RollingUpdateDeploymentStrategyType:
		if s.RollingUpdate == nil {
			return field.ErrorList{field.Required(rolling, "this should be defaulted and never be nil")}
		}
	default:
		return field.ErrorList{field.NotSupported(path, s, []appsv1.DeploymentStrategyType{appsv1.RecreateDeploymentStrategyType, appsv1.RollingUpdateDeploymentStrategyType})}
	}
	unavailable, surge := ptr.Deref(s.RollingUpdate.MaxUnavailable, intstr.IntOrString{}), ptr.Deref(s.RollingUpdate.MaxSurge, intstr.IntOrString{})
	errs := rules.IntOrPercent(unavailable, rolling.Child("maxUnavailable"))
	errs = append(errs, rules.IntOrPercent(surge, rolling.Child("maxSurge"))...)
	if rules.PercentValue(unavailable) == 0 && rules.PercentValue(surge) == 0 {
		errs = append(errs, field.Invalid(rolling.Child("maxUnavailable"), unavailable, "may not be 0 when `maxSurge` is 0"))
	}
	return append(errs, rules.AtMost100Percent(unavailable, rolling.Child("maxUnavailable"))...)
}

func validateDeploymentStatus(d, old *appsv1.Deployment) field.ErrorList {
	s := &d.Status
	errs := validateCounts(s.Replicas,
		count{"observedGeneration", s.ObservedGeneration, false},
		count{"replicas", int64(s.Replicas), false},
		count{"updatedReplicas", int64(s.UpdatedReplicas), true},
		count{"readyReplicas", int64(s.ReadyReplicas), true},
		count{"availableReplicas", int64(s.AvailableReplicas), true},
		count{"unavailableReplicas", int64(s.UnavailableReplicas), false},
		count{"terminatingReplicas", int64(ptr.Deref(s.TerminatingReplicas, 0)), false},
		count{"collisionCount", int64(ptr.Deref(s.CollisionCount, 0)), false})
	errs = append(errs, validateAvailable(s.AvailableReplicas, s.ReadyReplicas, "readyReplicas")...)
	return append(errs, validateCollisions(s.CollisionCount, old.Status.CollisionCount)...)
}
