package upstream

import (
	"context"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"portico/backends/core/kinds"
	porticorest "portico/resource/rest"
)

// TestStrategiesAreThoseOfKubeAPIServer compares what rows and strategies say of a resource:
// scope, upserts, updates without resourceVersion, and the fields that writes reset.
func TestStrategiesAreThoseOfKubeAPIServer(t *testing.T) {
	t.Parallel()
	all := strategies()
	for _, k := range kinds.All(kinds.Config{}) {
		for _, version := range k.Versions {
			s, ok := all[k.GVR(version)]
			if !ok {
				continue // nothing is stored (bindings, componentstatuses)
			}
			expect(t, k, version, "namespaced", k.Namespaced, s.NamespaceScoped())
			expect(t, k, version, "upserts", k.CreateOnUpdate, s.AllowCreateOnUpdate(context.Background()))
			expect(t, k, version, "updates without resourceVersion", k.UnconditionalUpdate, s.AllowUnconditionalUpdate(context.Background()))
			expect(t, k, version, "reset", strings.Join(k.ResetFields(version, nil), " "), resetFields(s, k.Group, version))
			for _, sub := range k.Subresources {
				gvr := k.GVR(version)
				gvr.Resource += "/" + sub.Name
				if s, ok := all[gvr]; ok {
					expect(t, k, version, "reset by "+sub.Name, strings.Join(k.ResetFields(version, &sub), " "), resetFields(s, k.Group, version))
				}
			}
		}
	}
}

func expect[T comparable](t *testing.T, k *porticorest.Kind, version, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s %s: %s: %v, not %v", k.Resource, version, what, got, want)
	}
}

// resetFields returns the fields that a strategy of a version resets, as paths with dots.
func resetFields(s rest.RESTUpdateStrategy, group, version string) string {
	r, ok := s.(rest.ResetFieldsStrategy)
	if !ok {
		return ""
	}
	var all []string
	if set := r.GetResetFields()[fieldpath.APIVersion(metav1.GroupVersion{Group: group, Version: version}.String())]; set != nil {
		set.Iterate(func(p fieldpath.Path) { all = append(all, strings.TrimPrefix(p.String(), ".")) })
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}
