package plugins

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
	"portico/resource/rest"
)

// newPodTopologyLabels copies the zone and the region of a node to the bindings of pods to it,
// which pass them on to the pods, and to new pods on it.
func newPodTopologyLabels(cfg *Config) (rest.Admission, error) {
	nodes := cfg.Resource("", "nodes")
	return mutates(func(ctx context.Context, a *rest.Attributes) error {
		var to metav1.Object
		name := ""
		switch obj := a.Object.(type) {
		case *corev1.Pod:
			if subresourceOf(a) == "" {
				to, name = obj, obj.Spec.NodeName
			}
		case *corev1.Binding:
			if subresourceOf(a) == "binding" && obj.Target.Kind == "Node" {
				to, name = obj, obj.Target.Name
			}
		}
		if a.Operation != rest.Create || name == "" {
			return nil
		}
		node, err := nodes.Store.Get(ctx, resource.Key{Name: name}, cached)
		if err != nil {
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		}
		labels := to.GetLabels()
		for _, key := range []string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion} {
			if value, ok := node.Labels.Lookup(key); ok {
				if labels == nil {
					labels = map[string]string{}
				}
				labels[key] = value
			}
		}
		to.SetLabels(labels)
		return nil
	}), nil
}
