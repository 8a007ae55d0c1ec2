package kinds

import (
	"maps"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/core/kinds/rules"
	"portico/resource"
	"portico/resource/rest"
)

// replicationControllers is the row of v1 ReplicationController.
func replicationControllers() *rest.Kind {
	info := resource.Info{
		Versions: []string{"v1"}, Resource: "replicationcontrollers", Kind: "ReplicationController",
		ShortNames: []string{"rc"}, Categories: []string{"all"}, Namespaced: true, Path: "controllers",
	}
	w := &workload[*corev1.ReplicationController, corev1.ReplicationControllerSpec, corev1.ReplicationControllerStatus]{
		spec:     func(rc *corev1.ReplicationController) *corev1.ReplicationControllerSpec { return &rc.Spec },
		status:   func(rc *corev1.ReplicationController) *corev1.ReplicationControllerStatus { return &rc.Status },
		template: func(rc *corev1.ReplicationController) *corev1.PodTemplateSpec { return rc.Spec.Template },
		defaults: defaultReplicationController,
		validate: validateReplicationController,
		validateStatus: func(rc, _ *corev1.ReplicationController) field.ErrorList {
			return validateReplicaStatus(replicaStatus(rc))
		},
		named:      true,
		warnsOfOld: true, // as kube-apiserver
	}
	strategy := w.strategy()
	strategy.DefaultPropagation = metav1.DeletePropagationOrphan
	strategy.ValidateName = func(name string, prefix bool) []string {
		if prefix {
			return nil // what is generated is checked
		}
		return content.IsDNS1123Subdomain(name)
	}
	return &rest.Kind{
		Info:     info,
		Strategy: strategy,
		Subresources: []rest.Subresource{
			scale(&info, func(rc *corev1.ReplicationController) **int32 { return &rc.Spec.Replicas },
				func(rc *corev1.ReplicationController) (int32, labels.Selector, error) {
					return rc.Status.Replicas, labels.SelectorFromSet(rc.Spec.Selector), nil
				}),
			w.statusSubresource(),
		},
		Columns: replicaColumns(),
		Cells: cells(func(rc *corev1.ReplicationController) []any {
			return replicaCells(rc, rc.Spec.Replicas, replicaStatus(rc), rc.Spec.Template, labels.FormatLabels(rc.Spec.Selector))
		}),
		FieldLabels: []string{"status.replicas"},
		Fields: fieldsOf(func(rc *corev1.ReplicationController) map[string]string {
			return map[string]string{"status.replicas": strconv.Itoa(int(rc.Status.Replicas))}
		}),
		UnconditionalUpdate: true,
	}
}

// defaultReplicationController gives the controller the labels of its pods, as its selector
// and as its labels.
func defaultReplicationController(rc *corev1.ReplicationController) {
	rules.Default(&rc.Spec.Replicas, 1)
	if t := rc.Spec.Template; t != nil {
		if len(rc.Spec.Selector) == 0 {
			rc.Spec.Selector = maps.Clone(t.Labels)
		}
		if len(rc.Labels) == 0 {
			rc.Labels = maps.Clone(t.Labels)
		}
	}
}

// replicaStatus returns the numbers of the status as those of a ReplicaSet.
func replicaStatus(rc *corev1.ReplicationController) *appsv1.ReplicaSetStatus {
	s := &rc.Status
	return &appsv1.ReplicaSetStatus{
		Replicas: s.Replicas, FullyLabeledReplicas: s.FullyLabeledReplicas, ReadyReplicas: s.ReadyReplicas,
		AvailableReplicas: s.AvailableReplicas, ObservedGeneration: s.ObservedGeneration,
	}
}

func validateReplicationController(rc, old *corev1.ReplicationController) field.ErrorList {
	spec, path := &rc.Spec, field.NewPath("spec")
	errs := nonNegative(&spec.MinReadySeconds, path.Child("minReadySeconds"))
	if len(spec.Selector) == 0 {
		errs = append(errs, field.Required(path.Child("selector"), ""))
	}
	if spec.Replicas == nil {
		errs = append(errs, field.Required(path.Child("replicas"), ""))
	}
	errs = append(errs, nonNegative(spec.Replicas, path.Child("replicas"))...)
	if spec.Template == nil {
		return append(errs, field.Required(path.Child("template"), ""))
	}
	var oldTemplate *corev1.PodTemplateSpec
	if old != nil {
		oldTemplate = old.Spec.Template
	}
	return append(errs, validatePods(spec.Template, oldTemplate, labels.SelectorFromSet(spec.Selector), "ReplicationController", path.Child("template"))...)
}
