package plugins

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
	"portico/resource/rest"
)

// newRuntimeClass sets the overhead, the node selector and the tolerations of the runtime class of
// a new pod.
func newRuntimeClass(cfg *Config) (rest.Admission, error) {
	return &runtimeClasses{classes: cfg.Resource(nodev1.GroupName, "runtimeclasses")}, nil
}

type runtimeClasses struct{ classes *rest.Resource }

var errOverhead = errors.New("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")

// Mutate implements rest.Admission.
func (r *runtimeClasses) Mutate(ctx context.Context, a *rest.Attributes) error {
	pod, class, err := r.classOf(ctx, a)
	if class == nil {
		return err
	}
	if class.Overhead != nil {
		fixed := class.Overhead.PodFixed
		if len(pod.Spec.Overhead) > 0 && !equality.Semantic.DeepEqual(fixed, pod.Spec.Overhead) {
			return forbidden(a, errOverhead)
		}
		pod.Spec.Overhead = fixed.DeepCopy()
	}
	if class.Scheduling == nil {
		return nil
	}
	for key, value := range class.Scheduling.NodeSelector {
		if given, ok := pod.Spec.NodeSelector[key]; ok && given != value {
			return forbidden(a, fmt.Errorf("conflict: runtimeClass.scheduling.nodeSelector[%s] = %s; pod.spec.nodeSelector[%s] = %s", key, value, key, given))
		}
	}
	if pod.Spec.NodeSelector == nil && class.Scheduling.NodeSelector != nil {
		pod.Spec.NodeSelector = map[string]string{}
	}
	maps.Copy(pod.Spec.NodeSelector, class.Scheduling.NodeSelector)
	pod.Spec.Tolerations = mergeTolerations(pod.Spec.Tolerations, class.Scheduling.Tolerations)
	return nil
}

// Validate implements rest.Admission.
func (r *runtimeClasses) Validate(ctx context.Context, a *rest.Attributes) error {
	pod, class, err := r.classOf(ctx, a)
	switch {
	case err != nil || pod == nil:
		return err
	case class == nil || class.Overhead == nil:
		if pod.Spec.Overhead != nil {
			return forbidden(a, errors.New("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"))
		}
	case !equality.Semantic.DeepEqual(class.Overhead.PodFixed, pod.Spec.Overhead):
		return forbidden(a, errOverhead)
	}
	return nil
}

// classOf returns a new pod and its class. Both may be nil.
func (r *runtimeClasses) classOf(ctx context.Context, a *rest.Attributes) (*corev1.Pod, *nodev1.RuntimeClass, error) {
	pod := podOf(a)
	if pod == nil || a.Operation != rest.Create || pod.Spec.RuntimeClassName == nil {
		if a.Operation != rest.Create {
			pod = nil
		}
		return pod, nil, nil
	}
	name := *pod.Spec.RuntimeClassName
	class, err := readLive[*nodev1.RuntimeClass](ctx, r.classes, resource.Key{Name: name})
	if apierrors.IsNotFound(err) {
		err = forbidden(a, fmt.Errorf("pod rejected: RuntimeClass %q not found", name))
	}
	if err != nil {
		return nil, nil, err
	}
	return pod, class, nil
}
