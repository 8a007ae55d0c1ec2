package prevalidate

import (
	"math"
	"reflect"
	"regexp"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
)

const (
	// maxBits bounds the fields of one object that are required or have defaults.
	maxBits = 64
	// maxLimit bounds limits of numbers, so that float64 holds each exactly.
	maxLimit = 1e15
)

// types is a set of types of JSON values.
type types uint8

const (
	stringType types = 1 << iota
	integerType
	fractionType
	booleanType
	objectType
	arrayType

	anyType = stringType | integerType | fractionType | booleanType | objectType | arrayType
)

// node is a compiled schema of one value. Immutable.
type node struct {
	types types
	// fields are the properties, and the names that are required without being one.
	fields map[string]field
	// required and defaulted are sets of bits of fields. oneOf, if not nil, are sets of
	// which exactly one must be there.
	required, defaulted uint64
	oneOf               []uint64
	// open reports that there are additionalProperties, and extra is their schema; nil
	// prunes everything in them.
	open  bool
	extra *node
	// items is the schema of elements; nil prunes everything in them.
	items *node
	// nullable, preserve and embedded are the schema's own. An embedded resource has
	// apiVersion, kind and metadata in addition to its properties.
	nullable, preserve, embedded bool
	// unverified means that validity cannot be decided, opaque that nothing can.
	unverified, opaque bool
	// *rules are nil if there are none.
	*rules
}

// field is a property, or a name that is only required: then node is nil.
type field struct {
	*node
	// bit is the field's in required, defaulted and oneOf; 0 if it is in none.
	bit uint64
}

// rules are checked besides a value's type. Each applies to values of one type.
type rules struct {
	minLength, maxLength         *int64
	minItems, maxItems           *int64
	minProperties, maxProperties *int64
	pattern                      *regexp.Regexp
	instructions                 int             // of pattern
	format                       string          // "": none
	enum                         map[string]bool // of strings; nil: none
	numbers                      *limits
	// mapKeys are the names of the fields that elements of a list differ in. The
	// elements of a set differ as a whole.
	mapKeys []string
	isSet   bool
	// anyOf and allOf are schemas of the same value.
	anyOf, allOf []*node
}

// limits are limits of numbers.
type limits struct {
	minimum, maximum                   float64 // infinite: none
	exclusiveMinimum, exclusiveMaximum bool
	multipleOf                         float64 // 0: none
	int32                              bool    // the format of an integer
}

type compiler struct {
	patterns map[string]*regexp.Regexp
	strip    func(*spec.Schema) error
}

func newCompiler() *compiler {
	return &compiler{
		patterns: map[string]*regexp.Regexp{},
		strip:    validation.StripUnsupportedFormatsPostProcessorForVersion(environment.DefaultCompatibilityVersion()),
	}
}

// object compiles the schema of a whole object. The metadata of one is checked apart.
func (c *compiler) object(p *apiextensions.JSONSchemaProps) *node {
	n := c.node(p, true)
	n.resource(p)
	return n
}

// node compiles a schema. One that is not structural, in anyOf or allOf, only validates.
func (c *compiler) node(p *apiextensions.JSONSchemaProps, structural bool) *node {
	n := &node{nullable: p.Nullable, preserve: p.XPreserveUnknownFields != nil && *p.XPreserveUnknownFields, embedded: p.XEmbeddedResource}
	n.setType(p)
	n.setFields(c, p, structural)
	n.rules = c.rules(n, p, structural)
	if n.embedded {
		n.unverified = true
		n.resource(p)
	}
	if len(p.PatternProperties)+len(p.Dependencies)+len(p.Definitions) > 0 || p.AdditionalItems != nil ||
		p.Ref != nil && *p.Ref != "" || p.UniqueItems || p.Not != nil {
		n.unverified = true
	}
	return n
}

var typesOf = map[string]types{
	"": anyType, "object": objectType, "array": arrayType, "string": stringType,
	"integer": integerType, "number": integerType | fractionType, "boolean": booleanType,
}

func (n *node) setType(p *apiextensions.JSONSchemaProps) {
	n.types = typesOf[p.Type]
	if p.XIntOrString {
		n.types = stringType | integerType
	}
	n.unverified = n.types == 0
}

// setFields compiles properties, required, oneOf, additionalProperties and items.
func (n *node) setFields(c *compiler, p *apiextensions.JSONSchemaProps, structural bool) {
	bits := 0
	// bit returns the bit of a field, which it adds if it is missing.
	bit := func(name string) uint64 {
		f := n.fields[name]
		if f.bit != 0 {
			return f.bit
		}
		if bits == maxBits {
			n.opaque, n.unverified = true, true
			return 0
		}
		f.bit = 1 << bits
		bits++
		n.fields[name] = f
		return f.bit
	}
	if len(p.Properties)+len(p.Required)+len(p.OneOf) > 0 {
		n.fields = make(map[string]field, len(p.Properties)+len(p.Required))
	}
	for name := range p.Properties {
		prop := p.Properties[name]
		n.fields[name] = field{node: c.node(&prop, structural)}
		if prop.Default != nil && *prop.Default != nil && structural {
			n.defaulted |= bit(name)
		}
	}
	for _, name := range p.Required {
		n.required |= bit(name)
	}
	for i := range p.OneOf {
		var set uint64
		for _, name := range p.OneOf[i].Required {
			set |= bit(name)
		}
		n.oneOf = append(n.oneOf, set)
		n.unverified = n.unverified || n.types != objectType || !onlyRequires(&p.OneOf[i])
	}
	if a := p.AdditionalProperties; a != nil {
		n.open = true
		if a.Schema != nil {
			n.extra = c.node(a.Schema, structural)
		}
		n.opaque = n.opaque || a.Schema == nil && !a.Allows
		// Some of upstream's validators apply both schemas to a field that is also a
		// property.
		n.unverified = n.unverified || !structural || len(p.Properties) > 0
	}
	if p.Items != nil && p.Items.Schema != nil {
		n.items = c.node(p.Items.Schema, structural)
	}
	n.unverified = n.unverified || p.Items != nil && p.Items.Schema == nil
}

// onlyRequires reports whether a schema has required fields and nothing else.
func onlyRequires(p *apiextensions.JSONSchemaProps) bool {
	rest := *p
	rest.Required = nil
	return len(p.Required) > 0 && reflect.DeepEqual(&rest, &apiextensions.JSONSchemaProps{})
}

// resource prepares the node of a value that has metadata. Defaults in metadata are not
// supported.
func (n *node) resource(p *apiextensions.JSONSchemaProps) {
	if prop, ok := p.Properties["metadata"]; ok && hasDefaults(&prop) {
		n.opaque = true
	}
}

func hasDefaults(p *apiextensions.JSONSchemaProps) bool {
	if p == nil {
		return false
	}
	for name := range p.Properties {
		if prop := p.Properties[name]; hasDefaults(&prop) {
			return true
		}
	}
	return p.Default != nil || p.Items != nil && hasDefaults(p.Items.Schema) ||
		p.AdditionalProperties != nil && hasDefaults(p.AdditionalProperties.Schema)
}

// rules compiles the rules of a value; nil: there are none.
func (c *compiler) rules(n *node, p *apiextensions.JSONSchemaProps, structural bool) *rules {
	r := &rules{
		minLength: p.MinLength, maxLength: p.MaxLength, minItems: p.MinItems, maxItems: p.MaxItems,
		minProperties: p.MinProperties, maxProperties: p.MaxProperties,
	}
	if p.Pattern != "" {
		r.pattern, r.instructions = c.pattern(p.Pattern), Instructions(p.Pattern)
		n.unverified = n.unverified || r.pattern == nil
	}
	format := c.format(n, p)
	if n.types == stringType {
		r.format = format
	}
	r.setNumbers(n, p, format)
	r.setEnum(n, p.Enum)
	if structural && p.XListType != nil {
		r.isSet = *p.XListType == "set"
		if *p.XListType == "map" {
			r.mapKeys = p.XListMapKeys
			n.unverified = n.unverified || len(r.mapKeys) == 0 || len(r.mapKeys) > maxMapKeys
		}
	}
	for i := range p.AnyOf {
		r.anyOf = append(r.anyOf, c.node(&p.AnyOf[i], false))
	}
	for i := range p.AllOf {
		r.allOf = append(r.allOf, c.node(&p.AllOf[i], false))
	}
	if reflect.DeepEqual(r, &rules{}) {
		return nil
	}
	return r
}

// pattern compiles a pattern once; nil: it cannot be compiled.
func (c *compiler) pattern(text string) *regexp.Regexp {
	re, ok := c.patterns[text]
	if !ok {
		re, _ = regexp.Compile(text)
		c.patterns[text] = re
	}
	return re
}

// format returns the format that upstream checks; "": none.
func (c *compiler) format(n *node, p *apiextensions.JSONSchemaProps) string {
	s := &spec.Schema{SchemaProps: spec.SchemaProps{Format: p.Format}}
	if p.XIntOrString {
		s.Type = spec.StringOrArray{"integer", "string"}
	} else if p.Type != "" {
		s.Type = spec.StringOrArray{p.Type}
	}
	if err := c.strip(s); err != nil {
		n.unverified = true
	}
	if s.Format != "" && (len(s.Type) != 1 || s.Type[0] == "string" && !strfmt.Default.ContainsName(s.Format)) {
		n.unverified = true
	}
	return s.Format
}

// setNumbers compiles the limits of numbers. A limit that is no integer, or out of the
// range of its type, is not supported.
func (r *rules) setNumbers(n *node, p *apiextensions.JSONSchemaProps, format string) {
	kind := ""
	if !p.XIntOrString && (p.Type == "integer" || p.Type == "number") {
		kind = p.Type
	}
	l := &limits{
		minimum: math.Inf(-1), maximum: math.Inf(1), exclusiveMinimum: p.ExclusiveMinimum, exclusiveMaximum: p.ExclusiveMaximum,
		int32: kind == "integer" && format == "int32",
	}
	some := l.int32
	for to, limit := range map[*float64]*float64{&l.minimum: p.Minimum, &l.maximum: p.Maximum, &l.multipleOf: p.MultipleOf} {
		if limit == nil {
			continue
		}
		some = true
		*to = *limit
		n.unverified = n.unverified || math.Trunc(*limit) != *limit || math.Abs(*limit) > maxLimit ||
			validate.IsValueValidAgainstRange(*limit, kind, format, "", "") != nil
	}
	n.unverified = n.unverified || p.MultipleOf != nil && *p.MultipleOf <= 0
	if some {
		r.numbers = l
	}
}

func (r *rules) setEnum(n *node, values []apiextensions.JSON) {
	for _, value := range values {
		text, ok := value.(string)
		if !ok {
			n.unverified = true
			continue
		}
		if r.enum == nil {
			r.enum = map[string]bool{}
		}
		r.enum[text] = true
	}
}
