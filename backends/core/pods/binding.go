package pods

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/resource"
)

// Bind sets the node of a pod that has none. body is a Binding: its labels and annotations are
// added to those of the pod, its uid and resourceVersion are preconditions. Errors: Invalid;
// NotFound; Conflict for a pod that cannot be bound.
func (a *Actions) Bind(ctx context.Context, key resource.Key, body runtime.Object, dryRun bool) (runtime.Object, error) {
	b, ok := body.(*corev1.Binding)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a Binding object: %T", body))
	}
	if errs := validateBinding(b); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Binding"}, b.Name, errs)
	}
	_, err := modify(ctx, a.pods(), key, dryRun, func(p *corev1.Pod) error { return bind(p, b) })
	if err != nil {
		return nil, err
	}
	return &metav1.Status{Status: metav1.StatusSuccess}, nil
}

func validateBinding(b *corev1.Binding) field.ErrorList {
	path, metadata := field.NewPath("target"), field.NewPath("metadata")
	errs := metav1validation.ValidateLabels(b.Labels, metadata.Child("labels"))
	errs = append(errs, apivalidation.ValidateAnnotations(b.Annotations, metadata.Child("annotations"))...)
	ofNode := b.Target.Kind == "" || b.Target.Kind == "Node"
	if !ofNode {
		errs = append(errs, field.NotSupported(path.Child("kind"), b.Target.Kind, []string{"Node", "<empty>"}))
	}
	switch name := b.Target.Name; {
	case name == "":
		errs = append(errs, field.Required(path.Child("name"), ""))
	case ofNode:
		for _, msg := range apivalidation.NameIsDNSSubdomain(name, false) {
			errs = append(errs, field.Invalid(path.Child("name"), name, msg))
		}
	}
	return errs
}

// bind changes the pod. Its generation stays: schedulers do not change what is asked for.
func bind(p *corev1.Pod, b *corev1.Binding) error {
	refuse := func(of schema.GroupResource, format string, args ...any) error {
		return apierrors.NewConflict(of, p.Name, fmt.Errorf(format, args...))
	}
	binding := schema.GroupResource{Resource: "pods/binding"}
	switch {
	case b.UID != "" && b.UID != p.UID:
		return refuse(podResource, "Precondition failed: UID in precondition: %v, UID in object meta: %v", b.UID, p.UID)
	case b.ResourceVersion != "" && b.ResourceVersion != p.ResourceVersion:
		return refuse(podResource, "Precondition failed: ResourceVersion in precondition: %v, ResourceVersion in object meta: %v", b.ResourceVersion, p.ResourceVersion)
	case p.DeletionTimestamp != nil:
		return refuse(binding, "pod %s is being deleted, cannot be assigned to a host", p.Name)
	case p.Spec.NodeName != "":
		return refuse(binding, "pod %v is already assigned to node %q", p.Name, p.Spec.NodeName)
	case len(p.Spec.SchedulingGates) > 0:
		return refuse(binding, "pod %v has non-empty .spec.schedulingGates", p.Name)
	}
	p.Spec.NodeName, p.Status.NominatedNodeName = b.Target.Name, ""
	p.Annotations = merged(p.Annotations, b.Annotations)
	for _, name := range initContainerAnnotations {
		delete(p.Annotations, name)
	}
	p.Labels = merged(p.Labels, b.Labels)
	setCondition(&p.Status, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue})
	return nil
}

// initContainerAnnotations are the annotations of pods that stood for init containers before there was a field for them,
// and that kube-apiserver removes.
var initContainerAnnotations = []string{
	"pod.beta.kubernetes.io/init-containers", "pod.alpha.kubernetes.io/init-containers",
	"pod.beta.kubernetes.io/init-container-statuses", "pod.alpha.kubernetes.io/init-container-statuses",
}

// merged returns into with the entries of from.
func merged(into, from map[string]string) map[string]string {
	if len(from) == 0 {
		return into
	}
	if into == nil {
		into = map[string]string{}
	}
	maps.Copy(into, from)
	return into
}
