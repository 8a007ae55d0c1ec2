package custom

import (
	"context"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/backends/crd/prevalidate"
	"portico/resource"
	"portico/resource/rest"
)

// decodePrevalidated decodes a JSON body with the apiVersion and kind want that
// normalize would not change except for defaults, which it adds. nil: the body must be
// decoded and normalized by upstream's packages.
func (c *codec) decodePrevalidated(data []byte, mediaType string, want schema.GroupVersionKind) *unstructured.Unstructured {
	if mediaType != mediaJSON && mediaType != "" || want.GroupKind() != c.gvk.GroupKind() {
		return nil
	}
	s, err := c.kinds.schema(c.outline, want.Version)
	if err != nil {
		return nil
	}
	u := s.decodePrevalidated(data)
	if u == nil || u.GroupVersionKind() != want {
		return nil
	}
	return u
}

// decodePrevalidated is codec.decodePrevalidated for any apiVersion and kind.
func (s *versionSchema) decodePrevalidated(data []byte) *unstructured.Unstructured {
	verdict := s.compiled().CheckForm(data, prevalidate.Body)
	if verdict < prevalidate.LacksDefaults {
		return nil
	}
	object, err := decodeObject(data)
	if err != nil {
		return nil
	}
	u := &unstructured.Unstructured{Object: object}
	if meta, ok := object["metadata"].(map[string]any); ok && meta["creationTimestamp"] == nil {
		delete(meta, "creationTimestamp")
	}
	if verdict == prevalidate.LacksDefaults {
		if s.boundDefaults(object) != nil {
			return nil
		}
		defaulting.Default(object, s.structural)
	}
	return u
}

// prevalidated implements rest.Strategy.Prevalidated: of an object with valid bytes,
// only the scale fields and the CEL rules are checked, which need its values.
func (c *custom) prevalidated(ctx context.Context, o *resource.Object, obj, old rest.Object) (field.ErrorList, bool) {
	return c.checkPrevalidated(ctx, o, obj, old, true)
}

// statusPrevalidated is prevalidated for an update of the status.
func (c *custom) statusPrevalidated(ctx context.Context, o *resource.Object, obj, old rest.Object) (field.ErrorList, bool) {
	return c.checkPrevalidated(ctx, o, obj, old, false)
}

func (c *custom) checkPrevalidated(ctx context.Context, o *resource.Object, obj, old rest.Object, spec bool) (field.ErrorList, bool) {
	if o.APIVersion != c.kind.GVK(c.version.Name).GroupVersion().String() {
		// It is stored in a version that has a schema of its own.
		return nil, false
	}
	s, v, errs := c.validators()
	if errs != nil {
		return nil, false
	}
	verdict := s.compiled().Check(o.Data, prevalidate.Stored)
	if verdict >= prevalidate.Canonical {
		o.Canonical(c.kind.Codec.(*codec).id, func(*resource.Object) bool { return true })
	}
	if verdict != prevalidate.Valid {
		return nil, false
	}
	object := content(obj)
	errs = c.validateScale(object, spec)
	if v.rules == nil {
		return errs, true
	}
	if old == nil {
		return validateRules(ctx, s, v, errs, object, nil), true
	}
	return validateRules(ctx, s, v, errs, object, content(old), cel.WithRatcheting(correlate(s, object, content(old)))), true
}
