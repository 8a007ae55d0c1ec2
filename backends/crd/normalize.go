package crd

import (
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// normalization says how an object is normalized.
type normalization struct {
	// stored is for an object from etcd, or one that was normalized before:
	// malformed metadata is dropped instead of rejected, and a missing generation is
	// set.
	stored bool
	// unknown asks for the paths of fields that are dropped.
	unknown bool
}

// normalize makes an object conform to the schema: metadata is coerced to its type,
// unknown fields and nulls that have a default are dropped, and defaults are added
// (docs/wire.md 9.4). Defaults of more than maxDefaults are a 413 for a body; a stored
// object, which may be older than the defaults, stays without them, so that it can be
// read, changed and deleted. A schema that preserves unknown fields drops nothing.
// apiVersion, kind and metadata always stay.
func (s *versionSchema) normalize(u *unstructured.Unstructured, how normalization) (unknown []string, err error) {
	apiVersion, kind := u.GetAPIVersion(), u.GetKind()
	meta, found, unknown, err := objectmeta.GetObjectMetaWithOptions(u.Object, objectmeta.ObjectMetaOptions{
		DropMalformedFields: how.stored, ReturnUnknownFieldPaths: how.unknown,
	})
	if err != nil {
		return nil, err
	}
	if !s.preserving {
		unknown = append(unknown, pruning.PruneWithOptions(u.Object, s.structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: how.unknown})...)
		defaulting.PruneNonNullableNullsWithoutDefaults(u.Object, s.structural)
	}
	invalid, paths := objectmeta.CoerceWithOptions(nil, u.Object, s.structural, false, objectmeta.CoerceOptions{
		DropInvalidFields: how.stored, ReturnUnknownFieldPaths: how.unknown,
	})
	if invalid != nil {
		return nil, invalid
	}
	unknown = append(unknown, paths...)
	u.SetKind(kind)
	u.SetAPIVersion(apiVersion)
	if found {
		if how.stored && meta.Generation == 0 {
			meta.Generation = 1
		}
		if err := objectmeta.SetObjectMeta(u.Object, meta); err != nil {
			return nil, err
		}
	}
	if err := s.boundDefaults(u.Object); err != nil {
		if how.stored {
			return unknown, nil
		}
		return nil, err
	}
	defaulting.Default(u.Object, s.structural)
	return unknown, nil
}
