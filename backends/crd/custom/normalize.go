package custom

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	// maxDefaults is the number of bytes (sizeOf) that the defaults of a schema may add to
	// an object; etcd stores at most 1.5 MB of one. A default in the items of an
	// array is added for each item, so that a body of 300 KB can become gigabytes.
	maxDefaults = 1 << 20
	// maxDefaultSteps is the number of properties that are looked for in all objects of an
	// object, to find the defaults that are missing: the properties of its schema for each. 5 million
	// take half a second.
	maxDefaultSteps = 5_000_000
	// valueSize is what each value of a default counts besides its text, in bytes: its
	// punctuation, a number, and the memory of a map entry.
	valueSize = 24
)

// normalization is how an object is made to conform to a schema.
type normalization struct {
	// stored is for an object from etcd, or one that was normalized before: malformed
	// metadata is dropped instead of rejected, and a missing generation is set.
	stored bool
	// unknown asks for the paths of fields that are dropped.
	unknown bool
}

// normalize makes an object conform to the schema (see coerce) and adds defaults
// (docs/wire.md 9.4). Defaults beyond maxDefaults and maxDefaultSteps are a 413 for a body; a stored
// object, which may be older than the defaults, is left without them, so that it can be
// read, changed and deleted.
func (s *versionSchema) normalize(u *unstructured.Unstructured, how normalization) (unknown []string, err error) {
	if unknown, err = s.coerce(u, how); err != nil {
		return nil, err
	}
	if err := s.addDefaults(u); err != nil && !how.stored {
		return nil, err
	}
	return unknown, nil
}

// addDefaults adds the defaults to an object. Those beyond the bounds are a 413, and nothing
// is added.
func (s *versionSchema) addDefaults(u *unstructured.Unstructured) error {
	if err := s.boundDefaults(u.Object); err != nil {
		return err
	}
	defaulting.Default(u.Object, s.structural)
	return nil
}

// coerce makes an object conform to the schema without defaults: metadata is coerced to its
// type, unknown fields are dropped, and so are nulls that the schema does not allow, unless
// a default replaces them. A schema that preserves unknown fields drops nothing. apiVersion,
// kind and metadata always stay.
func (s *versionSchema) coerce(u *unstructured.Unstructured, how normalization) (unknown []string, err error) {
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
	return unknown, nil
}

// boundDefaults returns the 413 for an object to which the schema's defaults would add more
// than maxDefaults, or in which it takes more than maxDefaultSteps to find them. Nothing is
// added.
func (s *versionSchema) boundDefaults(object map[string]any) error {
	count := defaultCount{left: maxDefaults, steps: maxDefaultSteps}
	if count.within(object, *s.structural) {
		return nil
	}
	slices.Reverse(count.path)
	at := strings.TrimPrefix(strings.Join(count.path, ""), ".")
	if count.steps < 0 {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
			"the properties that the schema has for each object are more than %d in all objects together, with %s: send fewer objects", maxDefaultSteps, at))
	}
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the defaults of the schema add more than %d bytes to the object, with %s", maxDefaults, at))
}

// defaultCount counts the bytes that defaults add and the properties that are looked for, up
// to a limit of each.
type defaultCount struct {
	left, steps int
	path        []string // where a limit was exceeded, innermost first
}

// within counts what is added within a value, and reports whether the limits were kept.
func (c *defaultCount) within(value any, s schema.Structural) bool {
	switch value := value.(type) {
	case map[string]any:
		if c.steps -= len(s.Properties); c.steps < 0 {
			return false
		}
		for name, prop := range s.Properties {
			if _, ok := value[name]; !ok && prop.Default.Object != nil && !c.at(name, nil, prop, true) {
				return c.exceeded("." + name)
			}
		}
		for name, member := range value {
			prop, known := s.Properties[name]
			if !known {
				if s.AdditionalProperties == nil || s.AdditionalProperties.Structural == nil {
					continue
				}
				prop = *s.AdditionalProperties.Structural
			}
			if !c.at(name, member, prop, member == nil && !prop.Nullable) {
				return c.exceeded("." + name)
			}
		}
	case []any:
		if s.Items == nil {
			return true
		}
		for i, item := range value {
			if !c.at("", item, *s.Items, item == nil && !s.Items.Nullable) {
				return c.exceeded(fmt.Sprintf("[%d]", i))
			}
		}
	}
	return true
}

// at counts what is added at and within the value of a field; name is "" for an item. A
// missing value, or a null where the schema allows none, is replaced by the default.
func (c *defaultCount) at(name string, value any, s schema.Structural, missing bool) bool {
	if missing && s.Default.Object != nil {
		value = s.Default.Object
		if c.left -= len(name) + sizeOf(value); c.left < 0 {
			return false
		}
	}
	return c.within(value, s)
}

func (c *defaultCount) exceeded(part string) bool {
	c.path = append(c.path, part)
	return false
}

// sizeOf returns about how many bytes a value takes in JSON, and at least as many in memory.
func sizeOf(value any) int {
	n := valueSize
	switch value := value.(type) {
	case string:
		n += len(value)
	case map[string]any:
		for name, member := range value {
			n += len(name) + sizeOf(member)
		}
	case []any:
		for _, item := range value {
			n += sizeOf(item)
		}
	}
	return n
}
