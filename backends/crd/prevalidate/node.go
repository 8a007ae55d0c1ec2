package prevalidate

import (
	"regexp"

	"k8s.io/kube-openapi/pkg/validation/strfmt"
)

// kinds is a set of kinds of JSON values.
type kinds uint8

const (
	aText kinds = 1 << iota
	aWhole
	aFraction
	aBool
	anObject
	anArray

	anything = aText | aWhole | aFraction | aBool | anObject | anArray
)

// node is a compiled schema of one value. Immutable.
type node struct {
	// fields are the properties, and the names that are required without being
	// one.
	fields map[string]field
	// required and defaulted are sets of bits of fields.
	required, defaulted uint64
	// open says that there are additionalProperties, extra is their schema;
	// nil prunes everything.
	open  bool
	extra *node
	// items is the schema of elements; nil prunes everything in them.
	items *node
	kinds kinds
	// nullable and preserve are the schema's own; an embedded resource has
	// apiVersion, kind and metadata whatever its properties are.
	nullable, preserve, embedded bool
	// blurred says that nothing can be told of validity, opaque that nothing can
	// be told at all.
	blurred, opaque bool
	// *rules are what values are held to; nil: nothing but the above.
	*rules
}

// field is a property, or a name that is only required: then node is nil.
type field struct {
	*node
	// bit is the field's in required and defaulted; 0 if it is in neither.
	bit uint64
}

// rules are what a value is held to beside its kind. Each group applies to
// values of one kind.
type rules struct {
	minLength, maxLength         *int64
	minItems, maxItems           *int64
	minProperties, maxProperties *int64
	pattern                      *regexp.Regexp
	format                       strfmt.Registry // nil: none
	formatName                   string
	number                       *numberRules
	enum                         *enum
	// uniqueKeys are what the elements of a list are told apart by: the names of
	// fields, or the whole element, if isSet.
	uniqueKeys []string
	isSet      bool
	// anyOf, allOf, oneOf and not are schemas of the same value.
	anyOf, allOf, oneOf []*node
	not                 *node
}

// numberRules are limits of numbers. nil: there is no such limit.
type numberRules struct {
	minimum, maximum, multipleOf       *float64
	exclusiveMinimum, exclusiveMaximum bool
	// narrow: whole numbers have 32 bits.
	narrow bool
	// blurred: a limit is out of the range of the type, which upstream has its
	// own opinion of.
	blurred bool
}

// enum is the values that there may be.
type enum struct {
	texts map[string]struct{}
	whole []int64
	// bools has bit 0 for false and bit 1 for true.
	bools uint8
	// others says that there are values of other kinds.
	others bool
}
