package plugins

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	"portico/resource"
	"portico/resource/rest"
)

// newPriority sets the priority of pods by their class, or by the default class, and permits one
// default class.
func newPriority(cfg *Config) (rest.Admission, error) {
	return &priorities{classes: cfg.Resource(schedulingv1.GroupName, "priorityclasses")}, nil
}

type priorities struct{ classes *rest.Resource }

// Mutate implements rest.Admission.
func (p *priorities) Mutate(ctx context.Context, a *rest.Attributes) error {
	pod := podOf(a)
	if pod == nil {
		return nil
	}
	if old, ok := a.Old.(*corev1.Pod); ok {
		// An update may leave out what a creation set.
		pod.Spec.Priority = or(pod.Spec.Priority, old.Spec.Priority)
		pod.Spec.PreemptionPolicy = or(pod.Spec.PreemptionPolicy, old.Spec.PreemptionPolicy)
		return nil
	}
	class, err := p.classOf(ctx, a, pod.Spec.PriorityClassName)
	if err != nil {
		return err
	}
	if given := pod.Spec.Priority; given != nil && *given != class.Value {
		return forbidden(a, fmt.Errorf("the integer value of priority (%d) must not be provided in pod spec; priority admission controller computed %d from the given PriorityClass name", *given, class.Value))
	}
	if given := pod.Spec.PreemptionPolicy; given != nil && class.PreemptionPolicy != nil && *given != *class.PreemptionPolicy {
		return forbidden(a, fmt.Errorf("the string value of PreemptionPolicy (%s) must not be provided in pod spec; priority admission controller computed %s from the given PriorityClass name", *given, *class.PreemptionPolicy))
	}
	pod.Spec.PriorityClassName, pod.Spec.Priority = class.Name, ptr.To(class.Value)
	pod.Spec.PreemptionPolicy = or(class.PreemptionPolicy, pod.Spec.PreemptionPolicy)
	return nil
}

// or returns a, or b if a is nil.
func or[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}

// classOf returns the class of a name; "": the default class, or the values of pods without any.
func (p *priorities) classOf(ctx context.Context, a *rest.Attributes, name string) (*schedulingv1.PriorityClass, error) {
	if name == "" {
		class, err := p.defaultClass(ctx)
		if err != nil {
			return nil, fmt.Errorf("error occurred while retrieving default priority class: %w", err)
		}
		if class == nil {
			class = &schedulingv1.PriorityClass{PreemptionPolicy: ptr.To(corev1.PreemptLowerPriority)}
		}
		return class, nil
	}
	class, err := rest.GetObject[*schedulingv1.PriorityClass](ctx, p.classes, resource.Key{Name: name}, cached)
	switch {
	case apierrors.IsNotFound(err):
		return nil, forbidden(a, fmt.Errorf("no PriorityClass with name %v was found", name))
	case err != nil:
		return nil, fmt.Errorf("failed to resolve PriorityClass with name %s: %w", name, err)
	}
	return class, nil
}

// defaultClass returns the default class, of several the lowest; nil if there is none.
func (p *priorities) defaultClass(ctx context.Context) (best *schedulingv1.PriorityClass, err error) {
	all, err := list[*schedulingv1.PriorityClass](ctx, p.classes, "")
	for _, class := range all {
		if class.GlobalDefault && (best == nil || class.Value < best.Value) {
			best = class
		}
	}
	return best, err
}

// Validate implements rest.Admission.
func (p *priorities) Validate(ctx context.Context, a *rest.Attributes) error {
	class, ok := written[*schedulingv1.PriorityClass](a)
	if !ok || !class.GlobalDefault {
		return nil
	}
	other, err := p.defaultClass(ctx)
	if err != nil {
		return fmt.Errorf("failed to get default priority class: %w", err)
	}
	if other != nil && (a.Operation == rest.Create || other.Name != class.Name) {
		return forbidden(a, fmt.Errorf("PriorityClass %v is already marked as default. Only one default can exist", other.Name))
	}
	return nil
}
