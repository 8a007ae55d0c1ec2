package plugins

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"portico/resource"
	"portico/resource/rest"
)

const (
	// nodeSelectorAnnotation is the node selector of all pods of a namespace, and
	// clusterNodeSelector names that of namespaces without one in the configuration.
	nodeSelectorAnnotation = "scheduler.alpha.kubernetes.io/node-selector"
	clusterNodeSelector    = "clusterDefaultNodeSelector"
)

// newPodNodeSelector adds the node selector of its namespace to a new pod, and limits the selector
// to the labels that the configuration has for that namespace.
func newPodNodeSelector(cfg *Config) (rest.Admission, error) {
	var selectors struct {
		PodNodeSelectorPluginConfig map[string]string `json:"podNodeSelectorPluginConfig"`
	}
	if err := cfg.files.decode("PodNodeSelector", &selectors); err != nil {
		return nil, err
	}
	for name, selector := range selectors.PodNodeSelectorPluginConfig {
		if _, err := labels.ConvertSelectorToLabelsMap(selector); err != nil {
			return nil, fmt.Errorf("podNodeSelectorPluginConfig.%s: %w", name, err)
		}
	}
	return &podNodeSelector{namespaces: cfg.Resource("", "namespaces"), selectors: selectors.PodNodeSelectorPluginConfig}, nil
}

type podNodeSelector struct {
	namespaces *rest.Resource
	selectors  map[string]string
}

// Mutate implements rest.Admission.
func (p *podNodeSelector) Mutate(ctx context.Context, a *rest.Attributes) error {
	pod, own, err := p.selectorFor(ctx, a)
	if pod == nil {
		return err
	}
	pod.Spec.NodeSelector = labels.Merge(own, pod.Spec.NodeSelector)
	return p.limit(a, pod)
}

// Validate implements rest.Admission.
func (p *podNodeSelector) Validate(ctx context.Context, a *rest.Attributes) error {
	pod, _, err := p.selectorFor(ctx, a)
	if pod == nil {
		return err
	}
	return p.limit(a, pod)
}

// selectorFor returns a new pod and the selector of its namespace, which do not contradict each
// other; a nil pod: another write, or the error.
func (p *podNodeSelector) selectorFor(ctx context.Context, a *rest.Attributes) (*corev1.Pod, labels.Set, error) {
	pod := podOf(a)
	if pod == nil || a.Operation != rest.Create {
		return nil, nil, nil
	}
	namespace, err := readLive[*corev1.Namespace](ctx, p.namespaces, resource.Key{Name: a.Key.Namespace})
	if err != nil {
		return nil, nil, err
	}
	text, ok := namespace.Annotations[nodeSelectorAnnotation]
	if !ok {
		text = p.selectors[clusterNodeSelector]
	}
	own, err := labels.ConvertSelectorToLabelsMap(text)
	if err != nil {
		return nil, nil, err
	}
	if labels.Conflicts(own, pod.Spec.NodeSelector) {
		return nil, nil, forbidden(a, errors.New("pod node label selector conflicts with its namespace node label selector"))
	}
	return pod, own, nil
}

// limit rejects labels that the configuration does not have for the namespace; without any, all
// are permitted.
func (p *podNodeSelector) limit(a *rest.Attributes, pod *corev1.Pod) error {
	allowed, err := labels.ConvertSelectorToLabelsMap(p.selectors[a.Key.Namespace])
	if err != nil || len(allowed) == 0 {
		return err
	}
	for key, value := range pod.Spec.NodeSelector {
		if permitted, ok := allowed[key]; !ok || permitted != value {
			return forbidden(a, errors.New("pod node label selector labels conflict with its namespace whitelist"))
		}
	}
	return nil
}
