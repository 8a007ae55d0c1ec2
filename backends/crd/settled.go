package crd

import (
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"portico/backends/crd/accept"
	"portico/resource"
)

// decodeSettled decodes a body that is certainly a want in line with its schema;
// nil is one that has to be looked at more closely.
func (c *codec) decodeSettled(data []byte, mediaType string, want schema.GroupVersionKind) *unstructured.Unstructured {
	if mediaType != mediaJSON && mediaType != "" || want.GroupKind() != c.gvk.GroupKind() {
		return nil
	}
	s, err := c.server.schemaOf(c.serving, want.Version)
	if err != nil || !s.acceptor().Settled(data, accept.Body) {
		return nil
	}
	u := &unstructured.Unstructured{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &u.Object); err != nil || u.GroupVersionKind() != want {
		return nil
	}
	if meta, ok := u.Object["metadata"].(map[string]any); ok && meta["creationTimestamp"] == nil {
		delete(meta, "creationTimestamp")
	}
	return u
}

// Exact implements rest.Exacting: whether coercing, pruning and defaulting leave
// the stored bytes as they are. It is found out once for each object and schema,
// mostly without decoding them.
func (c *codec) Exact(o *resource.Object) bool {
	return o.Exact(c, func(o *resource.Object) bool {
		s, err := c.server.schemaOf(c.serving, c.gvk.Version)
		if err == nil && o.APIVersion == c.gvk.GroupVersion().String() && s.acceptor().Settled(o.Data, accept.Stored) {
			return true
		}
		var before map[string]any
		if err := kjson.UnmarshalCaseSensitivePreserveInts(o.Data, &before); err != nil {
			return false
		}
		u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(before)}
		return c.read(u) == nil && reflect.DeepEqual(before, u.Object)
	})
}
