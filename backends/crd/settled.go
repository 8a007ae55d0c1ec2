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

	"portico/backends/crd/accept"
	"portico/resource"
	"portico/resource/rest"
)

// decodeSettled decodes a body that is certainly a want in line with its schema,
// but for defaults, which it gets; nil is one that has to be looked at more
// closely.
func (c *codec) decodeSettled(data []byte, mediaType string, want schema.GroupVersionKind) *unstructured.Unstructured {
	if mediaType != mediaJSON && mediaType != "" || want.GroupKind() != c.gvk.GroupKind() {
		return nil
	}
	s, err := c.server.schemaOf(c.serving, want.Version)
	if err != nil {
		return nil
	}
	u := s.decodeSettled(data)
	if u == nil || u.GroupVersionKind() != want {
		return nil
	}
	return u
}

// decodeSettled decodes a body of whichever kind; see there.
func (s *versionSchema) decodeSettled(data []byte) *unstructured.Unstructured {
	verdict := s.acceptor().Shape(data, accept.Body)
	if verdict < accept.Lacking {
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
	if verdict == accept.Lacking {
		if s.boundDefaults(object) != nil {
			return nil
		}
		defaulting.Default(object, s.structural)
	}
	return u
}

// vouch implements rest.Strategy.Vouch: of an object whose bytes are valid, only
// the scale fields and the rules, which need its values, are checked. With them
// it is known, too, that the bytes can be served as they are.
func (c *custom) vouch(ctx context.Context, o *resource.Object, obj, old rest.Object) (field.ErrorList, bool) {
	return c.vouchFor(ctx, o, obj, old, true)
}

// vouchStatus is vouch for a change of the status alone.
func (c *custom) vouchStatus(ctx context.Context, o *resource.Object, obj, old rest.Object) (field.ErrorList, bool) {
	return c.vouchFor(ctx, o, obj, old, false)
}

func (c *custom) vouchFor(ctx context.Context, o *resource.Object, obj, old rest.Object, spec bool) (field.ErrorList, bool) {
	if o.APIVersion != c.kind.GVK(c.version.Name).GroupVersion().String() {
		// It is stored in a version that has a schema of its own.
		return nil, false
	}
	s, checks, errs := c.checks()
	if errs != nil {
		return nil, false
	}
	verdict := s.acceptor().Accept(o.Data, accept.Stored)
	if verdict >= accept.Settled {
		o.Exact(c.kind.Codec.(*codec).id, func(*resource.Object) bool { return true })
	}
	if verdict != accept.Valid {
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

// Exact implements rest.Exacting: whether coercing, pruning and defaulting leave
// the stored bytes as they are. It is found out once for each object and schema,
// mostly without decoding them.
func (c *codec) Exact(o *resource.Object) bool {
	return o.Exact(c.id, func(o *resource.Object) bool {
		s, err := c.server.schemaOf(c.serving, c.gvk.Version)
		if err == nil && o.APIVersion == c.gvk.GroupVersion().String() && s.acceptor().Shape(o.Data, accept.Stored) >= accept.Settled {
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
