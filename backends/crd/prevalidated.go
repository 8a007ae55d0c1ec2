package crd

import (
	"context"
	"reflect"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/common"

	"portico/backends/crd/prevalidate"
	"portico/resource"
	"portico/resource/rest"
)

// decodePrevalidated decodes a JSON body whose apiVersion and kind are want and that
// normalize would only add defaults to, which it adds. nil: the body has to be
// decoded and normalized in the general way.
func (c *codec) decodePrevalidated(data []byte, mediaType string, want schema.GroupVersionKind) *unstructured.Unstructured {
	if mediaType != mediaJSON && mediaType != "" || want.GroupKind() != c.gvk.GroupKind() {
		return nil
	}
	s, err := c.server.schemaOf(c.serving, want.Version)
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

// prevalidated implements rest.Strategy.Prevalidated: of an object whose bytes are
// valid, only the scale fields and the CEL rules are checked, which need its values.
func (c *custom) prevalidated(ctx context.Context, o *resource.Object, obj, old rest.Object) (field.ErrorList, bool) {
	return c.prevalidatedParts(ctx, o, obj, old, true)
}

// statusPrevalidated is prevalidated for a change of the status alone.
func (c *custom) statusPrevalidated(ctx context.Context, o *resource.Object, obj, old rest.Object) (field.ErrorList, bool) {
	return c.prevalidatedParts(ctx, o, obj, old, false)
}

func (c *custom) prevalidatedParts(ctx context.Context, o *resource.Object, obj, old rest.Object, spec bool) (field.ErrorList, bool) {
	if o.APIVersion != c.kind.GVK(c.version.Name).GroupVersion().String() {
		// It is stored in a version that has a schema of its own.
		return nil, false
	}
	s, checks, errs := c.checks()
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
	if checks.rules == nil {
		return errs, true
	}
	if old == nil {
		return validateRules(ctx, s, checks, errs, object, nil), true
	}
	was := content(old)
	unchanged := common.NewCorrelatedObject(object, was, &model.Structural{Structural: s.structural})
	return validateRules(ctx, s, checks, errs, object, was, cel.WithRatcheting(unchanged)), true
}

// Canonical implements rest.CanonicalCodec: whether coercing metadata, pruning and
// defaulting change nothing. The answer is kept with the object for each schema, and
// mostly takes no decoding.
func (c *codec) Canonical(o *resource.Object) bool {
	return o.Canonical(c.id, func(o *resource.Object) bool {
		s, err := c.server.schemaOf(c.serving, c.gvk.Version)
		if err == nil && o.APIVersion == c.gvk.GroupVersion().String() && s.compiled().CheckForm(o.Data, prevalidate.Stored) >= prevalidate.Canonical {
			return true
		}
		before, err := decodeObject(o.Data)
		if err != nil {
			return false
		}
		u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(before)}
		return c.read(u) == nil && reflect.DeepEqual(before, u.Object)
	})
}
