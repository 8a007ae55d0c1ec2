package core

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
)

// The conditions of a namespace are bounded, whatever it contains.
func TestDrainConditionsAreBounded(t *testing.T) {
	r := newResult()
	held := &resource.Object{}
	for i := range 60000 {
		held.Finalizers = append(held.Finalizers, fmt.Sprintf("example.com/f%05d", i))
		r.content = append(r.content, errors.New(strings.Repeat("e", 10000)))
		r.remaining[fmt.Sprintf("r%05d.", i)] = 1
	}
	r.discovery = errors.New(strings.Repeat("é", 10000))
	r.count(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, []*resource.Object{held})
	for _, c := range r.conditions() {
		if len(c.Message) > 200<<10 || !utf8.ValidString(c.Message) {
			t.Errorf("%s: a message of %d bytes", c.Type, len(c.Message))
		}
		ends := map[corev1.NamespaceConditionType]string{
			corev1.NamespaceDeletionDiscoveryFailure: "é...",
			corev1.NamespaceDeletionContentFailure:   "e... and 59900 more",
			corev1.NamespaceContentRemaining:         ", r00098. has 1 resource instances and 59901 more",
			corev1.NamespaceFinalizersRemaining:      ", example.com/f00099 in 1 resource instances and 59900 more",
		}
		if !strings.HasSuffix(c.Message, ends[c.Type]) {
			t.Errorf("%s ends %s", c.Type, c.Message[max(0, len(c.Message)-80):])
		}
	}
}

// Namespaces have no deletecollection, and system namespaces cannot be deleted.
func TestNamespacesHaveNoDeleteCollection(t *testing.T) {
	c := running(t, Config{})
	c.must(t, http.MethodPost, "/api/v1/namespaces", object("aaa"), nil)
	for _, query := range []string{"", "?labelSelector=kubernetes.io/metadata.name%3Daaa"} {
		err := c.do(t, http.MethodDelete, "/api/v1/namespaces"+query, nil, nil)
		if want := `deletecollection is not supported on resources of kind "namespaces"`; !apierrors.IsMethodNotSupported(err) || err.Error() != want {
			t.Errorf("DELETE of all namespaces%s: %v, want 405 %s", query, err, want)
		}
	}
	for _, name := range []string{"default", "kube-system", "kube-public"} {
		err := c.do(t, http.MethodDelete, "/api/v1/namespaces/"+name, nil, nil)
		if want := fmt.Sprintf("namespaces %q is forbidden: this namespace may not be deleted", name); !apierrors.IsForbidden(err) || err.Error() != want {
			t.Errorf("DELETE of %s: %v, want 403 %s", name, err, want)
		}
	}
	if ns, ok := load[*corev1.Namespace](t, c, "", "namespaces", "", "aaa"); !ok || ns.DeletionTimestamp != nil {
		t.Errorf("a namespace was deleted with the collection: %+v", ns)
	}
}

// A namespace is deleted with its content. An object with a finalizer delays it, which the
// conditions show.
func TestDrain(t *testing.T) {
	c := running(t, Config{})
	c.must(t, http.MethodPost, "/api/v1/namespaces", object("n"), nil)
	c.must(t, http.MethodPost, "/api/v1/namespaces/n/configmaps", object("plain"), nil)
	c.must(t, http.MethodPost, "/api/v1/namespaces/n/secrets", map[string]any{
		"metadata": map[string]any{"name": "held", "finalizers": []string{"example.com/hold"}},
	}, nil)
	c.must(t, http.MethodPost, "/api/v1/namespaces/default/configmaps", object("plain"), nil)
	c.must(t, http.MethodDelete, "/api/v1/namespaces/n", nil, nil)
	condition := func(kind corev1.NamespaceConditionType) corev1.NamespaceCondition {
		ns, ok := load[*corev1.Namespace](t, c, "", "namespaces", "", "n")
		if !ok {
			t.Fatal("the namespace is gone before its content")
		}
		for _, c := range ns.Status.Conditions {
			if c.Type == kind {
				return c
			}
		}
		return corev1.NamespaceCondition{}
	}
	eventually(t, "the conditions tell what is left", func() bool {
		c := condition(corev1.NamespaceContentRemaining)
		return c.Status == corev1.ConditionTrue && c.Reason == "SomeResourcesRemain" && c.Message == "Some resources are remaining: secrets. has 1 resource instances"
	})
	if c := condition(corev1.NamespaceFinalizersRemaining); c.Status != corev1.ConditionTrue || c.Message != "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances" {
		t.Errorf("condition %+v", c)
	}
	if c := condition(corev1.NamespaceDeletionDiscoveryFailure); c.Status != corev1.ConditionFalse || c.Reason != "ResourcesDiscovered" {
		t.Errorf("condition %+v", c)
	}
	if _, ok := load[*corev1.ConfigMap](t, c, "", "configmaps", "n", "plain"); ok {
		t.Error("what nothing holds is still there")
	}
	err := c.do(t, http.MethodPost, "/api/v1/namespaces/n/configmaps", object("late"), nil)
	if !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		t.Errorf("create in a namespace that goes: %v", err)
	}
	secret, ok := load[*corev1.Secret](t, c, "", "secrets", "n", "held")
	if !ok || secret.DeletionTimestamp == nil {
		t.Fatalf("held secret %+v", secret)
	}
	secret.Finalizers = nil
	secret.APIVersion, secret.Kind = "v1", "Secret"
	c.must(t, http.MethodPut, "/api/v1/namespaces/n/secrets/held", secret, nil)
	eventually(t, "the namespace is gone", func() bool {
		_, ok := load[*corev1.Namespace](t, c, "", "namespaces", "", "n")
		return !ok
	})
	if _, ok := load[*corev1.ConfigMap](t, c, "", "configmaps", "default", "plain"); !ok {
		t.Error("another namespace lost its content")
	}
	if err := c.do(t, http.MethodPost, "/api/v1/namespaces/n/configmaps", object("late"), nil); !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), `namespaces "n" not found`) {
		t.Errorf("create in a namespace that is gone: %v", err)
	}
}

// The content of a namespace of the same name and another uid is not deleted.
func TestDrainSparesANamespaceOfTheSameName(t *testing.T) {
	c := running(t, Config{})
	c.must(t, http.MethodPost, "/api/v1/namespaces", object("n"), nil)
	c.must(t, http.MethodPost, "/api/v1/namespaces/n/configmaps", object("plain"), nil)
	c.drain.drain(t.Context(), "n", "uid-of-one-that-is-gone")
	if _, ok := load[*corev1.ConfigMap](t, c, "", "configmaps", "n", "plain"); !ok {
		t.Error("its content is deleted")
	}
}
