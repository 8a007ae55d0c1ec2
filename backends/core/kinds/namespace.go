package kinds

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/resource"
	"portico/resource/rest"
)

// namespaces is the row of v1 Namespace. A namespace is created with the finalizer
// "kubernetes" in its spec, which only the finalize subresource can remove, so that its
// deletion waits until its content is deleted.
func namespaces(cfg Config) *rest.Kind {
	return &rest.Kind{
		Info: resource.Info{
			Versions: []string{"v1"}, Resource: "namespaces", Kind: "Namespace", ShortNames: []string{"ns"},
		},
		// Without deletecollection: each deletion deletes the content of a namespace.
		Verbs: []string{"create", "delete", "get", "list", "patch", "update", "watch"},
		Strategy: rest.Strategy{
			Default:        onDefault(defaultNamespace),
			ValidateName:   apivalidation.NameIsDNSLabel,
			PrepareCreate:  onCreate(prepareNamespace),
			PrepareUpdate:  onUpdate(prepareNamespaceUpdate),
			Validate:       check(validateNamespace),
			ValidateUpdate: checkNew(validateNamespace),
			BeginDelete:    onDefault(func(ns *corev1.Namespace) { ns.Status.Phase = corev1.NamespaceTerminating }),
			DeleteWarnings: func(ctx context.Context, obj rest.Object) []string {
				if cfg.NamespaceWarnings == nil || !slices.Contains(obj.(*corev1.Namespace).Spec.Finalizers, corev1.FinalizerKubernetes) {
					return nil
				}
				return cfg.NamespaceWarnings(ctx, obj.GetName())
			},
			Holds: func(obj rest.Object) bool { return len(obj.(*corev1.Namespace).Spec.Finalizers) > 0 },
		},
		Subresources: []rest.Subresource{
			{Name: "finalize", Verbs: []string{"update"}, Strategy: &rest.Strategy{
				PrepareUpdate:  onUpdate(func(ns, old *corev1.Namespace) { old.Status.DeepCopyInto(&ns.Status) }),
				ValidateUpdate: checkNew(validateNamespaceFinalizers),
			}},
			{Name: "status", Strategy: &rest.Strategy{
				PrepareUpdate:  onUpdate(func(ns, old *corev1.Namespace) { old.Spec.DeepCopyInto(&ns.Spec) }),
				ValidateUpdate: checkNew(validateNamespaceStatus),
			}},
		},
		Columns: []metav1.TableColumnDefinition{
			nameColumn(), column("Status", "string", "Active, or Terminating while the content is being deleted."), ageColumn(),
		},
		Cells: cells(func(ns *corev1.Namespace) []any {
			return []any{ns.Name, string(ns.Status.Phase), age(ns.CreationTimestamp)}
		}),
		FieldLabels: []string{"name", "status.phase"},
		Fields: fieldsOf(func(ns *corev1.Namespace) map[string]string {
			return map[string]string{"name": ns.Name, "status.phase": string(ns.Status.Phase)}
		}),
		UnconditionalUpdate: true,
		ReturnDeleted:       true,
	}
}

// defaultNamespace sets the label with the name of the namespace, also if the body has another
// value, because selectors depend on it.
func defaultNamespace(ns *corev1.Namespace) {
	if ns.Status.Phase == "" {
		ns.Status.Phase = corev1.NamespaceActive
	}
	if ns.Name == "" { // with generateName prepareNamespace sets the label
		return
	}
	if ns.Labels == nil {
		ns.Labels = map[string]string{}
	}
	ns.Labels[corev1.LabelMetadataName] = ns.Name
}

func prepareNamespace(ns *corev1.Namespace) {
	ns.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
	if !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
		ns.Spec.Finalizers = append(ns.Spec.Finalizers, corev1.FinalizerKubernetes)
	}
	if len(apivalidation.NameIsDNSLabel(ns.Name, false)) == 0 { // else the errors are those of the name alone
		defaultNamespace(ns)
	}
}

func prepareNamespaceUpdate(ns, old *corev1.Namespace) {
	ns.Spec.Finalizers = slices.Clone(old.Spec.Finalizers)
	old.Status.DeepCopyInto(&ns.Status)
	defaultNamespace(ns)
}

func validateNamespace(ns *corev1.Namespace) field.ErrorList {
	var errs field.ErrorList
	for _, f := range ns.Spec.Finalizers {
		errs = append(errs, validateFinalizer(string(f), field.NewPath("spec", "finalizers"))...)
	}
	return errs
}

func validateNamespaceFinalizers(ns *corev1.Namespace) field.ErrorList {
	var errs field.ErrorList
	for i, f := range ns.Spec.Finalizers {
		errs = append(errs, validateFinalizer(string(f), field.NewPath("spec", "finalizers").Index(i))...)
	}
	return errs
}

// validateFinalizer accepts qualified names and the standard ones.
func validateFinalizer(name string, path *field.Path) field.ErrorList {
	errs := apivalidation.ValidateFinalizerName(name, path)
	if strings.Contains(name, "/") {
		return errs
	}
	switch name {
	case string(corev1.FinalizerKubernetes), metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents:
		return errs
	}
	return append(errs, field.Invalid(path, name, "name is neither a standard finalizer name nor is it fully qualified"))
}

func validateNamespaceStatus(ns *corev1.Namespace) field.ErrorList {
	path := field.NewPath("status", "Phase") // as upstream
	switch {
	case ns.DeletionTimestamp.IsZero() && ns.Status.Phase != corev1.NamespaceActive:
		return field.ErrorList{field.Invalid(path, ns.Status.Phase, "may only be 'Active' if `deletionTimestamp` is empty")}
	case !ns.DeletionTimestamp.IsZero() && ns.Status.Phase != corev1.NamespaceTerminating:
		return field.ErrorList{field.Invalid(path, ns.Status.Phase, "may only be 'Terminating' if `deletionTimestamp` is not empty")}
	}
	return nil
}
