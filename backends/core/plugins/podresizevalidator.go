package plugins

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"portico/resource"
	"portico/resource/rest"
)

// newPodResizeValidator rejects a resize of a pod that its node cannot have.
func newPodResizeValidator(cfg *Config) (rest.Admission, error) {
	nodes := cfg.Resource("", "nodes")
	return validates(func(ctx context.Context, a *rest.Attributes) error {
		if subresourceOf(a) != "resize" {
			return nil
		}
		pod, node, err := changedOnNode(ctx, a, nodes)
		if node == nil {
			return err
		}
		if os := node.Labels[corev1.LabelOSStable]; os != "" && os != string(corev1.Linux) {
			return because(forbidden(a, fmt.Errorf("pod resize is only supported on linux nodes, node %q is %q", node.Name, os)), "UnsupportedPlatform")
		}
		if err := fits(pod, node.Status.Allocatable); err != nil {
			return because(forbidden(a, err), "NodeCapacity")
		}
		return nil
	}), nil
}

// changedOnNode returns a pod with a changed spec, and its node; a nil node: the write is no
// such change, or the error.
func changedOnNode(ctx context.Context, a *rest.Attributes, nodes *rest.Resource) (*corev1.Pod, *corev1.Node, error) {
	pod, ok := a.Object.(*corev1.Pod)
	old, update := a.Old.(*corev1.Pod)
	if !ok || !update || pod.Spec.NodeName == "" || pod.Generation == old.Generation {
		return nil, nil, nil
	}
	node, err := rest.GetObject[*corev1.Node](ctx, nodes, resource.Key{Name: pod.Spec.NodeName}, cached)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil, forbidden(a, fmt.Errorf("node %q not found", pod.Spec.NodeName))
	case err != nil:
		return nil, nil, forbidden(a, fmt.Errorf("failed to get node %q: %w", pod.Spec.NodeName, err))
	}
	return pod, node, nil
}

// because adds a cause to a 403.
func because(err error, cause metav1.CauseType) error {
	var status *apierrors.StatusError
	if errors.As(err, &status) {
		status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{Type: cause})
	}
	return err
}

// fits reports whether the requests of a pod are within what a node has for pods.
func fits(pod *corev1.Pod, allocatable corev1.ResourceList) error {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	var lacks []string
	if r, has := requests.Cpu(), allocatable.Cpu(); r.Cmp(*has) > 0 {
		lacks = append(lacks, fmt.Sprintf("cpu, requested: %d, allocatable: %d", r.MilliValue(), has.MilliValue()))
	}
	if r, has := requests.Memory(), allocatable.Memory(); r.Cmp(*has) > 0 {
		lacks = append(lacks, fmt.Sprintf("memory, requested: %d, allocatable: %d", r.Value(), has.Value()))
	}
	if len(lacks) == 0 {
		return nil
	}
	return fmt.Errorf("node didn't have enough allocatable resources: %s", strings.Join(lacks, "; "))
}
