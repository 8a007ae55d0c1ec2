package plugins

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/nodedeclaredfeatures"

	"portico/resource/rest"
	"portico/resource/serve/version"
)

// newNodeDeclaredFeatureValidator rejects updates of a pod that need a feature which its node has
// not declared.
func newNodeDeclaredFeatureValidator(cfg *Config) (rest.Admission, error) {
	nodes := cfg.Resource("", "nodes")
	level, err := utilversion.Parse(version.Info().GitVersion)
	if err != nil {
		return nil, err
	}
	features := nodedeclaredfeatures.DefaultFramework
	return validates(func(ctx context.Context, a *rest.Attributes) error {
		if sub := subresourceOf(a); sub != "" && sub != "resize" {
			return nil
		}
		pod, ok := a.Object.(*corev1.Pod)
		old, update := a.Old.(*corev1.Pod)
		if !ok || !update || pod.Spec.NodeName == "" || pod.Generation == old.Generation {
			return nil
		}
		needs, err := features.InferForPodUpdate(&nodedeclaredfeatures.PodInfo{Spec: &old.Spec, Status: &old.Status},
			&nodedeclaredfeatures.PodInfo{Spec: &pod.Spec, Status: &pod.Status}, level)
		if err != nil {
			return forbidden(a, fmt.Errorf("failed to infer pod capability requirements: %w", err))
		}
		if needs.IsEmpty() {
			return nil
		}
		_, node, err := changedOnNode(ctx, a, nodes)
		if node == nil {
			return err
		}
		match, err := features.MatchNode(needs, node)
		switch {
		case err != nil:
			return forbidden(a, fmt.Errorf("failed to match pod requirements against node %q: %w", node.Name, err))
		case !match.IsMatch:
			return forbidden(a, fmt.Errorf("pod update requires features %s which are not available on node %q", strings.Join(match.UnsatisfiedRequirements, ", "), node.Name))
		}
		return nil
	}), nil
}
