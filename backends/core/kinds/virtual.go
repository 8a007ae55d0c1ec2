package kinds

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/resource/rest"
)

var bindingKind = corev1.SchemeGroupVersion.WithKind("Binding")

// virtualKinds are the resources that are not stored: component statuses, which are computed, and bindings, by which
// old schedulers bind pods.
func virtualKinds(cfg Config) []*rest.Kind {
	statuses := clusterwide("", "componentstatuses", "ComponentStatus", "cs")
	statuses.Singular = "componentstatus"
	hub := corev1.SchemeGroupVersion.WithKind("ComponentStatus")
	columns, cells := table(hub)
	all := []*rest.Kind{{
		Info: statuses, Verbs: []string{"get", "list"}, Computed: true, Codec: rest.Typed(scheme, hub), Columns: columns, Cells: cells,
		Deprecated: func(string) string { return "v1 ComponentStatus is deprecated in v1.19+" },
	}}
	if cfg.BindPod != nil {
		all = append(all, &rest.Kind{Info: namespaced("", "bindings", "Binding"), Codec: rest.Typed(scheme, bindingKind), Call: cfg.BindPod})
	}
	return all
}

// tokenRequests returns the subresource token of service accounts.
func tokenRequests(cfg Config) []rest.Subresource {
	if cfg.CreateToken == nil {
		return nil
	}
	return []rest.Subresource{{
		Name:     "token",
		GVK:      authenticationv1.SchemeGroupVersion.WithKind("TokenRequest"),
		Verbs:    []string{"create"},
		Strategy: &rest.Strategy{Default: func(obj rest.Object) { scheme.Default(obj) }},
		Create:   cfg.CreateToken,
		OtherName: func(name, url string) error {
			return apierrors.NewInvalid(schema.GroupKind{Group: authenticationv1.GroupName, Kind: "TokenRequest"}, url, field.ErrorList{
				field.Invalid(field.NewPath("metadata", "name"), name, "must match the service account name if specified"),
			})
		},
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
