package kinds

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestNamespaceLife(t *testing.T) {
	k := kind(t, "namespaces")
	ns := decode[*corev1.Namespace](t, k, `{"metadata":{"name":"x"},"spec":{"finalizers":["a.io/b"]},"status":{"phase":"Terminating"}}`)
	k.Strategy.PrepareCreate(t.Context(), ns)
	if want := []corev1.FinalizerName{"a.io/b", "kubernetes"}; !slices.Equal(ns.Spec.Finalizers, want) {
		t.Errorf("finalizers %v, want %v", ns.Spec.Finalizers, want)
	}
	if ns.Status.Phase != corev1.NamespaceActive || ns.Labels[corev1.LabelMetadataName] != "x" {
		t.Errorf("phase %s, labels %v", ns.Status.Phase, ns.Labels)
	}
	generated := decode[*corev1.Namespace](t, k, `{"metadata":{"generateName":"x-"}}`)
	if generated.Name = "x-abcde"; len(generated.Labels) != 0 {
		t.Errorf("labels %v before there is a name", generated.Labels)
	}
	generated.UID = "u"
	k.Strategy.PrepareCreate(t.Context(), generated)
	if expect(t, k.Strategy.Validate(t.Context(), generated)); generated.Labels[corev1.LabelMetadataName] != "x-abcde" {
		t.Errorf("labels %v of a generated name", generated.Labels)
	}

	// An update keeps the finalizers and the label.
	update := decode[*corev1.Namespace](t, k, `{"metadata":{"name":"x","labels":{"kubernetes.io/metadata.name":"y"}},"spec":{"finalizers":[]}}`)
	k.Strategy.PrepareUpdate(t.Context(), update, ns)
	if !slices.Equal(update.Spec.Finalizers, ns.Spec.Finalizers) || update.Labels[corev1.LabelMetadataName] != "x" {
		t.Errorf("after update: finalizers %v, labels %v", update.Spec.Finalizers, update.Labels)
	}

	k.Strategy.BeginDelete(ns)
	if ns.Status.Phase != corev1.NamespaceTerminating || !k.Strategy.Holds(ns) {
		t.Errorf("phase %s, held %v", ns.Status.Phase, k.Strategy.Holds(ns))
	}
	finalize := k.Subresources[0].Strategy
	done := decode[*corev1.Namespace](t, k, `{"metadata":{"name":"x","resourceVersion":"1"},"spec":{}}`)
	finalize.PrepareUpdate(t.Context(), done, ns)
	expect(t, finalize.ValidateUpdate(t.Context(), done, ns))
	if k.Strategy.Holds(done) || done.Status.Phase != corev1.NamespaceTerminating {
		t.Errorf("after finalize: held %v, phase %s", k.Strategy.Holds(done), done.Status.Phase)
	}
}
