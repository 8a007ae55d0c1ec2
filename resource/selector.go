package resource

import (
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// Selector chooses objects by labels and fields. The zero Selector matches
// everything. It is immutable and safe for concurrent use.
type Selector struct {
	// Labels may be nil: everything.
	Labels labels.Selector
	// Fields may be nil: everything.
	Fields fields.Selector
	// Extract gives the values of the kind's own selectable fields
	// (all but metadata.name and metadata.namespace); nil if it has none.
	Extract func(*Object) map[string]string
	// Names are the fields that Extract gives; others are extracted anew each
	// time they are asked for.
	Names []string
	// By identifies Extract and Names (comparable): selectors with the same By
	// share what was extracted of an object. It stays in memory for as long as
	// the object does.
	By any
}

// Empty reports whether the selector matches everything.
func (s Selector) Empty() bool {
	return (s.Labels == nil || s.Labels.Empty()) && (s.Fields == nil || s.Fields.Empty())
}

// Matches reports whether the object is chosen.
func (s Selector) Matches(o *Object) bool {
	if s.Labels != nil && !s.Labels.Empty() && !s.Labels.Matches(o.Labels) {
		return false
	}
	return s.Fields == nil || s.Fields.Empty() || s.Fields.Matches(objectFields{o, s})
}

// Name returns the one name that the field selector asks for, if it asks for
// exactly one (metadata.name=x).
func (s Selector) Name() (string, bool) {
	if s.Fields == nil {
		return "", false
	}
	return s.Fields.RequiresExactMatch("metadata.name")
}

// Namespace returns the one namespace that the field selector asks for, if it
// asks for exactly one (metadata.namespace=x).
func (s Selector) Namespace() (string, bool) {
	if s.Fields == nil {
		return "", false
	}
	return s.Fields.RequiresExactMatch("metadata.namespace")
}

// objectFields lets a field selector read an Object.
type objectFields struct {
	o *Object
	s Selector
}

func (f objectFields) Has(field string) bool {
	_, ok := f.s.Field(f.o, field)
	return ok
}

func (f objectFields) Get(field string) string {
	value, _ := f.s.Field(f.o, field)
	return value
}
