package custom

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"portico/resource/bodylimit"
)

const (
	// maxDefaults is the number of bytes that the defaults of a schema may add to an
	// object, in JSON; etcd stores at most 1.5 MB of one. A default in the items of an
	// array is added for each item, so that a body of 300 KB can become gigabytes.
	maxDefaults = 1 << 20
	// valueSize is what a value of a default counts in addition to its JSON, in bytes,
	// for its name and the memory of a map entry.
	valueSize = 16
)

// normalization is how an object is normalized.
type normalization struct {
	// stored is for an object from etcd, or one that was normalized before: malformed
	// metadata is dropped instead of rejected, and a missing generation is set.
	stored bool
	// unknown asks for the paths of fields that are dropped.
	unknown bool
}

// normalize makes an object conform to the schema: metadata is coerced to its type, unknown
// fields and nulls that have a default are dropped, and defaults are added (docs/wire.md
// 9.4). Defaults of more than maxDefaults are a 413 for a body; a stored object, which may
// be older than the defaults, is left without them, so that it can be read, changed and
// deleted. A schema that preserves unknown fields drops nothing. apiVersion, kind and
// metadata always stay.
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

// boundDefaults returns the 413 for an object to which the schema's defaults would add more
// than maxDefaults. Nothing is added.
func (s *versionSchema) boundDefaults(object map[string]any) error {
	count := defaultCount{left: maxDefaults}
	if count.within(object, s.defaults()) {
		return nil
	}
	slices.Reverse(count.path)
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the defaults of the schema add more than %d bytes to the object, with %s",
		maxDefaults, strings.TrimPrefix(strings.Join(count.path, ""), ".")))
}

// defaultNode has the defaults of a value and of the values within. Values without defaults
// have no node.
type defaultNode struct {
	value    any // nil: the value itself has no default
	size     int // what value counts, in bytes
	nullable bool
	fields   map[string]*defaultNode
	// missing are the names of the fields that have a default themselves.
	missing []string
	// declared has the fields that the schema names; other is the node of all others.
	declared     map[string]schema.Structural
	other, items *defaultNode
}

// compileDefaults returns the defaults of a schema; nil: it has none.
func compileDefaults(s *schema.Structural) *defaultNode {
	if s == nil {
		return nil
	}
	n := &defaultNode{value: s.Default.Object, nullable: s.Nullable, declared: s.Properties}
	if n.value != nil {
		// A default was JSON, so it can be encoded.
		data, _ := json.Marshal(n.value)
		size, _ := bodylimit.Measure(data, mediaJSON, bodylimit.Maps)
		n.size = len(data) + valueSize*(1+size.Values)
	}
	for name := range s.Properties {
		prop := s.Properties[name]
		field := compileDefaults(&prop)
		if field == nil {
			continue
		}
		if n.fields == nil {
			n.fields = map[string]*defaultNode{}
		}
		n.fields[name] = field
		if field.value != nil {
			n.missing = append(n.missing, name)
		}
	}
	slices.Sort(n.missing)
	n.items = compileDefaults(s.Items)
	if s.AdditionalProperties != nil {
		n.other = compileDefaults(s.AdditionalProperties.Structural)
	}
	if n.value == nil && n.fields == nil && n.items == nil && n.other == nil {
		return nil
	}
	return n
}

// defaultCount counts the bytes that defaults add, up to a limit.
type defaultCount struct {
	left int
	path []string // where the limit was exceeded, innermost first
}

// within counts what is added within a value, and reports whether the limit was kept.
func (c *defaultCount) within(value any, n *defaultNode) bool {
	if n == nil {
		return true
	}
	switch value := value.(type) {
	case map[string]any:
		for _, name := range n.missing {
			if _, ok := value[name]; !ok && !c.at(nil, n.fields[name], true) {
				return c.exceeded("." + name)
			}
		}
		if len(n.fields) == 0 && n.other == nil {
			return true
		}
		for name, member := range value {
			field := n.fields[name]
			if _, ok := n.declared[name]; !ok {
				field = n.other
			}
			if field != nil && !c.at(member, field, member == nil && !field.nullable) {
				return c.exceeded("." + name)
			}
		}
	case []any:
		if n.items == nil {
			return true
		}
		for i, item := range value {
			if !c.at(item, n.items, item == nil && !n.items.nullable) {
				return c.exceeded(fmt.Sprintf("[%d]", i))
			}
		}
	}
	return true
}

// at counts what is added at and within a value. A missing value, or a null where the
// schema allows none, is replaced by the default.
func (c *defaultCount) at(value any, n *defaultNode, missing bool) bool {
	if missing && n.value != nil {
		if c.left -= n.size; c.left < 0 {
			return false
		}
		value = n.value
	}
	return c.within(value, n)
}

func (c *defaultCount) exceeded(part string) bool {
	c.path = append(c.path, part)
	return false
}
