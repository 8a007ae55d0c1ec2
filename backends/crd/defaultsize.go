package crd

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource/bodylimit"
)

const (
	// maxDefaults is how many bytes the defaults of a schema may add to an object, in
	// JSON; etcd stores no more than 1.5 MB of one. A default in the items of an array
	// is added for each item, so that a body of 300 KB can become gigabytes.
	maxDefaults = 1 << 20
	// valueSize is what a value of a default counts besides its JSON, in bytes: its
	// name, and that the smallest takes a hundred bytes of memory.
	valueSize = 16
)

// defaultNode is what a schema fills in at one place and below it. Places without
// defaults have none.
type defaultNode struct {
	value    any // nil: the place has no default itself
	size     int // what value counts, in bytes
	nullable bool
	fields   map[string]*defaultNode
	// missing are the fields that have a default themselves.
	missing []string
	// declared has the fields that the schema names; other is that of all others.
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

// boundDefaults is the 413 for an object to which the schema's defaults would add more
// than maxDefaults. Nothing is added.
func (s *versionSchema) boundDefaults(object map[string]any) error {
	count := defaultCount{left: maxDefaults}
	if count.below(object, s.defaults()) {
		return nil
	}
	slices.Reverse(count.path)
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the defaults of the schema add more than %d bytes to the object, with %s",
		maxDefaults, strings.TrimPrefix(strings.Join(count.path, ""), ".")))
}

// defaultCount adds up what defaults add, until nothing is left.
type defaultCount struct {
	left int
	path []string // where nothing was left, from the inside out
}

// below counts what is added below a value. false: nothing is left.
func (c *defaultCount) below(value any, n *defaultNode) bool {
	if n == nil {
		return true
	}
	switch value := value.(type) {
	case map[string]any:
		for _, name := range n.missing {
			if _, ok := value[name]; !ok && !c.at(nil, n.fields[name], true) {
				return c.in("." + name)
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
				return c.in("." + name)
			}
		}
	case []any:
		if n.items == nil {
			return true
		}
		for i, item := range value {
			if !c.at(item, n.items, item == nil && !n.items.nullable) {
				return c.in(fmt.Sprintf("[%d]", i))
			}
		}
	}
	return true
}

// at counts what is added at a place that has a value, or none: what is not there, or
// null where the schema allows no null, is replaced by the default.
func (c *defaultCount) at(value any, n *defaultNode, none bool) bool {
	if none && n.value != nil {
		if c.left -= n.size; c.left < 0 {
			return false
		}
		value = n.value
	}
	return c.below(value, n)
}

func (c *defaultCount) in(part string) bool {
	c.path = append(c.path, part)
	return false
}
