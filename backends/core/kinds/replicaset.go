package kinds

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"portico/backends/core/kinds/rules"
	"portico/resource"
	"portico/resource/rest"
)

// replicaSets is the row of apps/v1 ReplicaSet.
func replicaSets() *rest.Kind {
	info := resource.Info{
		Group: appsv1.GroupName, Versions: []string{"v1"}, Resource: "replicasets", Kind: "ReplicaSet",
		ShortNames: []string{"rs"}, Categories: []string{"all"}, Namespaced: true,
	}
	w := &workload[*appsv1.ReplicaSet, appsv1.ReplicaSetSpec, appsv1.ReplicaSetStatus]{
		spec:           func(rs *appsv1.ReplicaSet) *appsv1.ReplicaSetSpec { return &rs.Spec },
		status:         func(rs *appsv1.ReplicaSet) *appsv1.ReplicaSetStatus { return &rs.Status },
		template:       func(rs *appsv1.ReplicaSet) *corev1.PodTemplateSpec { return &rs.Spec.Template },
		defaults:       func(rs *appsv1.ReplicaSet) { rules.Default(&rs.Spec.Replicas, 1) },
		validate:       validateReplicaSet,
		validateStatus: func(rs, _ *appsv1.ReplicaSet) field.ErrorList { return validateReplicaStatus(&rs.Status) },
		named:          true,
	}
	return &rest.Kind{
		Info:     info,
		Strategy: w.strategy(),
		Subresources: []rest.Subresource{
			scale(&info, func(rs *appsv1.ReplicaSet) **int32 { return &rs.Spec.Replicas },
				func(rs *appsv1.ReplicaSet) (int32, labels.Selector, error) {
					return selected(rs.Status.Replicas, rs.Spec.Selector)
				}),
			w.statusSubresource(),
		},
		Columns: replicaColumns(),
		Cells: cells(func(rs *appsv1.ReplicaSet) []any {
			return replicaCells(rs, rs.Spec.Replicas, &rs.Status, &rs.Spec.Template, metav1.FormatLabelSelector(rs.Spec.Selector))
		}),
		UnconditionalUpdate: true,
	}
}

func validateReplicaSet(rs, old *appsv1.ReplicaSet) field.ErrorList {
	spec, path := &rs.Spec, field.NewPath("spec")
	var oldTemplate *corev1.PodTemplateSpec
	if old != nil {
		oldTemplate = &old.Spec.Template
	}
	errs := nonNegative(spec.Replicas, path.Child("replicas"))
	errs = append(errs, nonNegative(&spec.MinReadySeconds, path.Child("minReadySeconds"))...)
	errs = append(errs, validateReplicated(spec.Selector, &spec.Template, oldTemplate, path)...)
	if old != nil {
		errs = append(errs, apivalidation.ValidateImmutableField(spec.Selector, old.Spec.Selector, path.Child("selector"))...)
	}
	return errs
}

// validateReplicaStatus returns the errors of the status of a ReplicaSet or
// ReplicationController.
func validateReplicaStatus(s *appsv1.ReplicaSetStatus) field.ErrorList {
	errs := validateCounts(s.Replicas,
		count{"replicas", int64(s.Replicas), false},
		count{"fullyLabeledReplicas", int64(s.FullyLabeledReplicas), true},
		count{"readyReplicas", int64(s.ReadyReplicas), true},
		count{"availableReplicas", int64(s.AvailableReplicas), true},
		count{"observedGeneration", s.ObservedGeneration, false},
		count{"terminatingReplicas", int64(ptr.Deref(s.TerminatingReplicas, 0)), false})
	return append(errs, validateAvailable(s.AvailableReplicas, s.ReadyReplicas, "readyReplicas")...)
}

// replicaColumns are the columns of ReplicaSet and ReplicationController.
func replicaColumns() []metav1.TableColumnDefinition {
	return append([]metav1.TableColumnDefinition{
		nameColumn(),
		column("Desired", "integer", "The desired pods."),
		column("Current", "integer", "The pods that exist."),
		column("Ready", "integer", "The ready pods."),
		ageColumn(),
	}, podColumns()...)
}

// replicaCells returns the cells of replicaColumns; t may be nil.
func replicaCells(obj rest.Object, replicas *int32, s *appsv1.ReplicaSetStatus, t *corev1.PodTemplateSpec, selector string) []any {
	var names, images string
	if t != nil {
		names, images = containerCells(t.Spec.Containers)
	}
	return []any{obj.GetName(), int64(ptr.Deref(replicas, 0)), int64(s.Replicas), int64(s.ReadyReplicas), age(obj.GetCreationTimestamp()), names, images, selector}
}
