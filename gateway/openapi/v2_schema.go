package openapi

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"k8s.io/kube-openapi/pkg/validation/spec"

	"portico/discovery"
)

const (
	definitionPrefix = "#/definitions/"
	componentPrefix  = "#/components/schemas/"

	extensionGVK        = "x-kubernetes-group-version-kind"
	extensionPreserve   = "x-kubernetes-preserve-unknown-fields"
	extensionSelectable = "x-kubernetes-selectable-fields"
)

// v2Schemas converts schemas to what readers of v2 support. kubectl rejects the whole document because
// of one dangling reference, one array without items or one oneOf, so these are removed.
type v2Schemas struct {
	// has reports whether there is a definition of that name.
	has func(name string) bool
}

// schema returns the converted schema; s may be shared and is not modified.
func (p v2Schemas) schema(s *spec.Schema) spec.Schema {
	out := *s
	out.Default = nil // old clients misread the types of defaults
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

// composed converts a reference that is wrapped for a description, and a choice of scalars.
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

// refer sets a reference if its definition exists.
func (p v2Schemas) refer(out *spec.Schema, ref string) {
	name, ok := discovery.ReferenceName(ref, componentPrefix)
	if !ok {
		name, ok = discovery.ReferenceName(ref, definitionPrefix)
	}
	if !ok || !p.has(name) {
		return
	}
	if r, err := spec.NewRef(definitionPrefix + discovery.ComponentName(name)); err == nil {
		out.Ref = r
	}
}

// children converts nested schemas.
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
		out.Items = nil // lists of schemas are not supported
	}
	if a := s.AdditionalProperties; a != nil && a.Schema != nil {
		inner := p.schema(a.Schema)
		out.AdditionalProperties = &spec.SchemaOrBool{Allows: true, Schema: &inner}
	}
	out.AdditionalItems, out.PatternProperties, out.Dependencies, out.Definitions = nil, nil, nil, nil
}

// vague removes what would make readers reject valid objects.
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
			out[discovery.ComponentName(name)] = p.definition(s)
		}
	}
	return out
}

// definition converts the schema of a definition. A kind that preserves unknown fields becomes an object without
// properties, as in kube-apiserver: kubectl refuses fields that the properties lack.
func (p v2Schemas) definition(s *spec.Schema) spec.Schema {
	kinds, isKind := s.Extensions[extensionGVK]
	if free, _ := s.Extensions.GetBool(extensionPreserve); !free || !isKind {
		return p.schema(s)
	}
	out := spec.Schema{SchemaProps: spec.SchemaProps{Type: spec.StringOrArray{"object"}}}
	out.AddExtension(extensionGVK, kinds)
	if fields, ok := s.Extensions[extensionSelectable]; ok {
		out.AddExtension(extensionSelectable, fields)
	}
	return out
}

const parameterPrefix = "#/parameters/"

// share moves common parameters to the document, which makes it several times smaller. Their names
// contain a digest of their content, so that equal ones of different parts have the same name.
func share(doc *spec.Swagger) error {
	if doc.Parameters == nil {
		doc.Parameters = map[string]spec.Parameter{}
	}
	for url, item := range doc.Paths.Paths {
		if err := shareAll(doc, item.Parameters); err != nil {
			return fmt.Errorf("share parameters of %s: %w", url, err)
		}
		for _, op := range operations(&item) {
			if err := shareAll(doc, op.Parameters); err != nil {
				return fmt.Errorf("share parameters of %s: %w", url, err)
			}
		}
	}
	return nil
}

func operations(item *spec.PathItem) (all []*spec.Operation) {
	for _, op := range []*spec.Operation{item.Get, item.Put, item.Post, item.Delete, item.Options, item.Head, item.Patch} {
		if op != nil {
			all = append(all, op)
		}
	}
	return all
}

func shareAll(doc *spec.Swagger, list []spec.Parameter) error {
	for i := range list {
		p := &list[i]
		if p.Ref.String() != "" || own(p) {
			continue
		}
		data, err := json.Marshal(p)
		if err != nil {
			return err
		}
		h := fnv.New64()
		_, _ = h.Write(data) // never fails
		name := p.Name + "-" + base64.URLEncoding.EncodeToString(h.Sum(nil)[:6])
		ref, err := spec.NewRef(parameterPrefix + name)
		if err != nil {
			return err
		}
		doc.Parameters[name] = *p
		*p = spec.Parameter{Refable: spec.Refable{Ref: ref}}
	}
	return nil
}

// own reports whether a parameter remains in its operation: it describes one kind, or old clients
// expect it there.
func own(p *spec.Parameter) bool {
	switch p.In {
	case "query":
		return p.Name == "dryRun" || p.Name == "fieldValidation"
	case "path":
		return p.Name == "name"
	case "body":
		return p.Schema == nil || !strings.HasPrefix(p.Schema.Ref.String(), definitionPrefix+"io.k8s.apimachinery")
	}
	return false
}
