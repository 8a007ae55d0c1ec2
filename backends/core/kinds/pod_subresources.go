package kinds

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"

	"portico/resource"
	"portico/resource/rest"
)

var bindingKind = corev1.SchemeGroupVersion.WithKind("Binding")

// bindings is the row of v1 Binding, a virtual kind by which old schedulers bind pods.
func bindings(cfg Config) []*rest.Kind {
	if cfg.BindPod == nil {
		return nil
	}
	return []*rest.Kind{{
		Info: resource.Info{Versions: []string{"v1"}, Resource: "bindings", Kind: "Binding", Namespaced: true},
		Call: cfg.BindPod,
	}}
}

// podCalls returns the subresources of pods that are calls.
func podCalls(cfg Config) []rest.Subresource {
	var out []rest.Subresource
	if cfg.BindPod != nil {
		out = append(out, rest.Subresource{Name: "binding", GVK: bindingKind, Verbs: []string{"create"}, Named: true, Create: cfg.BindPod})
	}
	if cfg.EvictPod != nil {
		out = append(out, rest.Subresource{
			Name: "eviction", GVK: policyv1.SchemeGroupVersion.WithKind("Eviction"), OldGVK: policyv1beta1.SchemeGroupVersion.WithKind("Eviction"),
			Verbs: []string{"create"}, Named: true, Create: cfg.EvictPod,
		})
	}
	return out
}

// withSubresources adds subresources to a row, in the order of their names.
func withSubresources(k *rest.Kind, more []rest.Subresource) *rest.Kind {
	k.Subresources = append(k.Subresources, more...)
	slices.SortFunc(k.Subresources, func(a, b rest.Subresource) int { return strings.Compare(a.Name, b.Name) })
	return k
}
