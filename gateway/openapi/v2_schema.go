package openapi

import (
	"slices"
	"strings"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

const (
	definitionPrefix = "#/definitions/"
	componentPrefix  = "#/components/schemas/"

	extensionPreserve = "x-kubernetes-preserve-unknown-fields"
)

// v2Schemas converts schemas into what readers of v2 understand. kubectl rejects the whole
// document because of one reference to nothing, one array without items or one oneOf:
// such schemas lose what cannot be understood.
type v2Schemas struct {
	// has reports whether there is a definition of that name.
	has func(name string) bool
}

// schema returns the converted schema; s may be shared and is not changed.
func (p v2Schemas) schema(s *spec.Schema) spec.Schema {
	out := *s
	out.Default = nil // old clients misread their types
	p.composed(&out, s)
	out.AllOf, out.AnyOf, out.OneOf, out.Not = nil, nil, nil, nil
	if ref := s.Ref.String(); ref != "" {
		out.Ref = spec.Ref{}
		p.refer(&out, ref)
	}
	if out.Ref.String() != "" {
		return spec.Schema{
			SchemaProps:      spec.SchemaProps{Ref: out.Ref, Description: out.Description},
			VendorExtensible: out.VendorExtensible,
		}
	}
	p.children(&out, s)
	return vague(out)
}

// composed converts what v2 can express: a reference that is wrapped to have a
// description, and a choice of scalars.
func (p v2Schemas) composed(out *spec.Schema, s *spec.Schema) {
	if len(s.AllOf) == 1 && s.AllOf[0].Ref.String() != "" && len(s.Type) == 0 && len(s.Properties) == 0 {
		p.refer(out, s.AllOf[0].Ref.String())
		return
	}
	if len(s.Type) > 0 || len(s.OneOf) == 0 || s.Extensions["x-kubernetes-int-or-string"] != nil {
		return
	}
	var types []string
	for i := range s.OneOf {
		if len(s.OneOf[i].Type) != 1 {
			return
		}
		types = append(types, s.OneOf[i].Type[0])
	}
	if slices.Contains(types, "string") {
		out.Type = spec.StringOrArray{"string"}
		if out.Format == "" && slices.Contains(types, "integer") {
			out.Format = "int-or-string"
		}
	}
}

// refer makes out a reference if its definition exists.
func (p v2Schemas) refer(out *spec.Schema, ref string) {
	name, ok := strings.CutPrefix(ref, componentPrefix)
	if !ok {
		name, ok = strings.CutPrefix(ref, definitionPrefix)
	}
	if !ok || !p.has(name) {
		return
	}
	if r, err := spec.NewRef(definitionPrefix + name); err == nil {
		out.Ref = r
	}
}

// children converts the schemas inside.
func (p v2Schemas) children(out, s *spec.Schema) {
	if s.Properties != nil {
		out.Properties = make(map[string]spec.Schema, len(s.Properties))
		required := s.Required
		for name, inner := range s.Properties {
			if inner.Nullable {
				required = slices.DeleteFunc(slices.Clone(required), func(r string) bool { return r == name })
			}
			out.Properties[name] = p.schema(&inner)
		}
		out.Required = required
	}
	if s.Items != nil && s.Items.Schema != nil {
		inner := p.schema(s.Items.Schema)
		out.Items = &spec.SchemaOrArray{Schema: &inner}
	} else {
		out.Items = nil // a list of schemas is not read
	}
	if a := s.AdditionalProperties; a != nil && a.Schema != nil {
		inner := p.schema(a.Schema)
		out.AdditionalProperties = &spec.SchemaOrBool{Allows: true, Schema: &inner}
	}
	out.AdditionalItems, out.PatternProperties, out.Dependencies, out.Definitions = nil, nil, nil, nil
}

// vague removes from a schema what would have its readers reject valid objects.
func vague(s spec.Schema) spec.Schema {
	free, _ := s.Extensions.GetBool(extensionPreserve)
	object := slices.Contains(s.Type, "object")
	switch {
	case s.Nullable, len(s.Type) > 1, free && object, free && len(s.Type) == 0:
		s.Type, s.Items, s.Properties, s.AdditionalProperties = nil, nil, nil, nil
	case free:
		s.Items, s.Properties = nil, nil
	}
	s.Nullable = false
	if slices.Contains(s.Type, "array") && s.Items == nil {
		s.Type = nil
	}
	if len(s.Type) == 1 && !slices.Contains([]string{"object", "array", "string", "number", "integer", "boolean"}, s.Type[0]) {
		s.Type = nil
	}
	if !slices.Contains(s.Type, "array") {
		s.Items = nil
	}
	if len(s.Type) == 0 || object {
		return s
	}
	s.Properties = nil
	return s
}

// definitions converts all schemas of a document.
func (p v2Schemas) definitions(all map[string]*spec.Schema) spec.Definitions {
	out := make(spec.Definitions, len(all))
	for name, s := range all {
		if s != nil {
			out[name] = p.schema(s)
		}
	}
	return out
}
