package prevalidate

import (
	"regexp"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
)

// maxBits bounds the fields of one object that are required or have defaults.
const maxBits = 64

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

// spine compiles the schema of a whole object, which is an embedded resource
// without being called one: its own metadata is checked elsewhere.
func (c *compiler) spine(p *apiextensions.JSONSchemaProps) *node {
	n := c.node(p, true)
	n.embedded = false
	n.resource(p)
	return n
}

// node compiles a schema; outside of the spine it is one that only validates.
func (c *compiler) node(p *apiextensions.JSONSchemaProps, spine bool) *node {
	n := &node{nullable: p.Nullable, preserve: p.XPreserveUnknownFields != nil && *p.XPreserveUnknownFields, embedded: p.XEmbeddedResource}
	n.kinds, n.blurred = kindsOf(p)
	n.fieldsOf(c, p, spine)
	n.rules = c.rules(n, p, spine)
	if n.embedded {
		n.resource(p)
	}
	if len(p.PatternProperties)+len(p.Dependencies)+len(p.Definitions) > 0 || p.AdditionalItems != nil || p.Ref != nil && *p.Ref != "" || p.UniqueItems {
		n.blurred = true
	}
	return n
}

func kindsOf(p *apiextensions.JSONSchemaProps) (k kinds, blurred bool) {
	if p.XIntOrString {
		return aText | aWhole, false
	}
	switch p.Type {
	case "":
		return anything, false
	case "object":
		return anObject, false
	case "array":
		return anArray, false
	case "string":
		return aText, false
	case "integer":
		return aWhole, false
	case "number":
		return aWhole | aFraction, false
	case "boolean":
		return aBool, false
	}
	return anything, true
}

// fieldsOf compiles properties, additionalProperties and items.
func (n *node) fieldsOf(c *compiler, p *apiextensions.JSONSchemaProps, spine bool) {
	if len(p.Properties)+len(p.Required) > 0 {
		n.fields = make(map[string]field, len(p.Properties)+len(p.Required))
	}
	bits := 0
	bit := func() uint64 {
		bits++
		if bits > maxBits {
			n.opaque, n.blurred = true, true
			return 0
		}
		return 1 << (bits - 1)
	}
	for name := range p.Properties {
		prop := p.Properties[name]
		f := field{node: c.node(&prop, spine)}
		if prop.Default != nil && *prop.Default != nil && spine {
			f.bit = bit()
			n.defaulted |= f.bit
		}
		n.fields[name] = f
	}
	for _, name := range p.Required {
		f := n.fields[name]
		if f.bit == 0 {
			f.bit = bit()
		}
		n.required |= f.bit
		n.fields[name] = f
	}
	if a := p.AdditionalProperties; a != nil {
		n.open = true
		switch {
		case a.Schema != nil:
			n.extra = c.node(a.Schema, spine)
		case !a.Allows:
			n.opaque = true
		}
		// What stands in both is validated as both by some of upstream.
		n.blurred = n.blurred || !spine || len(p.Properties) > 0
	}
	if p.Items != nil {
		if p.Items.Schema == nil {
			n.blurred = true
			return
		}
		n.items = c.node(p.Items.Schema, spine)
	}
}

// resource says that a value has metadata, which is brought into its own form;
// what defaults do to that is not followed.
func (n *node) resource(p *apiextensions.JSONSchemaProps) {
	if prop, ok := p.Properties["metadata"]; ok && hasDefaults(&prop) {
		n.opaque = true
	}
}

// hasDefaults reports whether a schema fills in anything.
func hasDefaults(p *apiextensions.JSONSchemaProps) bool {
	if p.Default != nil {
		return true
	}
	for name := range p.Properties {
		prop := p.Properties[name]
		if hasDefaults(&prop) {
			return true
		}
	}
	if p.AdditionalProperties != nil && p.AdditionalProperties.Schema != nil && hasDefaults(p.AdditionalProperties.Schema) {
		return true
	}
	return p.Items != nil && p.Items.Schema != nil && hasDefaults(p.Items.Schema)
}

// rules compiles what a value is held to; nil: nothing.
func (c *compiler) rules(n *node, p *apiextensions.JSONSchemaProps, spine bool) *rules {
	r := rules{
		minLength: p.MinLength, maxLength: p.MaxLength, minItems: p.MinItems, maxItems: p.MaxItems,
		minProperties: p.MinProperties, maxProperties: p.MaxProperties, enum: enumOf(p.Enum),
	}
	some := p.MinLength != nil || p.MaxLength != nil || p.MinItems != nil || p.MaxItems != nil ||
		p.MinProperties != nil || p.MaxProperties != nil || r.enum != nil
	if p.Pattern != "" {
		some = true
		if r.pattern = c.pattern(p.Pattern); r.pattern == nil {
			n.blurred = true
		}
	}
	format := c.format(n, p)
	if format != "" && n.kinds == aText {
		r.format, r.formatName, some = strfmt.Default, format, true
	}
	if r.number = numbersOf(p, format); r.number != nil {
		some = true
	}
	if spine && p.XListType != nil {
		some = r.unique(n, *p.XListType, p.XListMapKeys) || some
	}
	return r.junctors(c, p, some)
}

// junctors compiles the schemas that the same value is held to.
func (r *rules) junctors(c *compiler, p *apiextensions.JSONSchemaProps, some bool) *rules {
	if p.Not == nil && len(p.AnyOf)+len(p.AllOf)+len(p.OneOf) == 0 {
		if !some {
			return nil
		}
		return r
	}
	all := func(in []apiextensions.JSONSchemaProps) []*node {
		var out []*node
		for i := range in {
			out = append(out, c.node(&in[i], false))
		}
		return out
	}
	r.anyOf, r.allOf, r.oneOf = all(p.AnyOf), all(p.AllOf), all(p.OneOf)
	if p.Not != nil {
		r.not = c.node(p.Not, false)
	}
	return r
}

// pattern compiles a pattern once; nil: it is none.
func (c *compiler) pattern(text string) *regexp.Regexp {
	re, ok := c.patterns[text]
	if !ok {
		re, _ = regexp.Compile(text)
		c.patterns[text] = re
	}
	return re
}

// format is the format that upstream checks; "" is none.
func (c *compiler) format(n *node, p *apiextensions.JSONSchemaProps) string {
	s := &spec.Schema{SchemaProps: spec.SchemaProps{Format: p.Format}}
	if p.XIntOrString {
		s.Type = spec.StringOrArray{"integer", "string"}
	} else if p.Type != "" {
		s.Type = spec.StringOrArray{p.Type}
	}
	if err := c.strip(s); err != nil {
		n.blurred = true
	}
	if s.Format != "" && (len(s.Type) != 1 || s.Type[0] == "string" && !strfmt.Default.ContainsName(s.Format)) {
		n.blurred = true
	}
	return s.Format
}

// numbersOf compiles the limits of numbers; nil: there are none.
func numbersOf(p *apiextensions.JSONSchemaProps, format string) *numberRules {
	r := &numberRules{
		minimum: p.Minimum, maximum: p.Maximum, multipleOf: p.MultipleOf,
		exclusiveMinimum: p.ExclusiveMinimum, exclusiveMaximum: p.ExclusiveMaximum,
	}
	kind := ""
	if !p.XIntOrString && (p.Type == "integer" || p.Type == "number") {
		kind = p.Type
	}
	r.narrow = kind == "integer" && format == "int32"
	for _, limit := range []*float64{p.Minimum, p.Maximum, p.MultipleOf} {
		if limit != nil && validate.IsValueValidAgainstRange(*limit, kind, format, "", "") != nil {
			r.blurred = true
		}
	}
	if !r.narrow && p.Minimum == nil && p.Maximum == nil && p.MultipleOf == nil {
		return nil
	}
	return r
}

// enumOf compiles an enumeration; nil: there is none.
func enumOf(values []apiextensions.JSON) *enum {
	if len(values) == 0 {
		return nil
	}
	e := &enum{texts: map[string]struct{}{}}
	for _, value := range values {
		switch v := value.(type) {
		case string:
			e.texts[v] = struct{}{}
		case int64:
			e.whole = append(e.whole, v)
		case bool:
			e.bools |= 1 << bit(v)
		default:
			e.others = true
		}
	}
	return e
}

func bit(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// unique compiles what the elements of a list are told apart by. It reports
// whether that is anything.
func (r *rules) unique(n *node, listType string, keys []string) bool {
	switch listType {
	case "set":
		r.isSet = true
		return true
	case "map":
		if len(keys) == 0 || len(keys) > maxMapKeys {
			n.blurred = true
			return false
		}
		r.uniqueKeys = keys
		return true
	}
	return false
}
