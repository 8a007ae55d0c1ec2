package access

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"portico/resource/rest"
)

// Field ownership is tracked for all stored kinds.
func TestOwnershipKnowsStoredKinds(t *testing.T) {
	kinds, err := New(Config{}).Kinds()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range kinds {
		if k.Review != nil {
			continue
		}
		converter, err := k.Ownership()
		if err != nil {
			t.Fatal(err)
		}
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(k.GVK("v1"))
		obj, err := k.Codec.(rest.Versioned).ConvertTo(u, k.GVK("v1").GroupVersion())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := converter.ObjectToTyped(obj); err != nil {
			t.Errorf("%s: %v", k.Kind, err)
		}
	}
}
