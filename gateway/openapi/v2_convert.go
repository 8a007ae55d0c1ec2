package openapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// fromV3 converts the v3 document of one group/version.
func fromV3(data []byte) (*spec.Swagger, error) {
	var doc spec3.OpenAPI
	if err := json.Unmarshal(data, &doc); err != nil {
		return nil, fmt.Errorf("decode OpenAPI v3 document: %w", err)
	}
	var schemas map[string]*spec.Schema
	if doc.Components != nil {
		schemas = doc.Components.Schemas
	}
	c := converter{v2Schemas{has: func(name string) bool { return schemas[name] != nil }}}
	out := &spec.Swagger{}
	out.Definitions = c.definitions(schemas)
	out.Paths = &spec.Paths{Paths: map[string]spec.PathItem{}}
	if doc.Paths != nil {
		for url, item := range doc.Paths.Paths {
			if item != nil {
				out.Paths.Paths[url] = c.path(item)
			}
		}
	}
	return out, nil
}

// converter converts paths from v3 to v2.
type converter struct{ v2Schemas }

func (c converter) path(in *spec3.Path) (out spec.PathItem) {
	out.Extensions = in.Extensions
	out.Parameters = c.parameters(in.Parameters)
	out.Get, out.Put, out.Post = c.operation(in.Get), c.operation(in.Put), c.operation(in.Post)
	out.Delete, out.Options = c.operation(in.Delete), c.operation(in.Options)
	out.Head, out.Patch = c.operation(in.Head), c.operation(in.Patch)
	return out
}

func (c converter) operation(in *spec3.Operation) *spec.Operation {
	if in == nil {
		return nil
	}
	out := &spec.Operation{VendorExtensible: in.VendorExtensible}
	out.ID, out.Tags, out.Summary, out.Description = in.OperationId, in.Tags, in.Summary, in.Description
	out.Deprecated, out.Schemes = in.Deprecated, []string{"https"}
	out.Parameters = c.parameters(in.Parameters)
	if in.RequestBody != nil {
		out.Consumes = slices.Sorted(maps.Keys(in.RequestBody.Content))
		body := spec.Parameter{ParamProps: spec.ParamProps{
			Name: "body", In: "body", Description: in.RequestBody.Description, Required: in.RequestBody.Required,
			Schema: c.content(in.RequestBody.Content),
		}}
		if body.Schema == nil {
			body.Schema = &spec.Schema{}
		}
		out.Parameters = append([]spec.Parameter{body}, out.Parameters...)
	}
	c.responses(out, in.Responses)
	return out
}

// responses also sets Produces to the media types of all responses.
func (c converter) responses(out *spec.Operation, in *spec3.Responses) {
	out.Responses = &spec.Responses{}
	if in == nil {
		return
	}
	produces := map[string]bool{}
	convert := func(r *spec3.Response) *spec.Response {
		for media := range r.Content {
			produces[media] = true
		}
		answer := spec.NewResponse()
		answer.Description, answer.Schema = r.Description, c.content(r.Content)
		return answer
	}
	if in.Default != nil {
		out.Responses.Default = convert(in.Default)
	}
	out.Responses.StatusCodeResponses = make(map[int]spec.Response, len(in.StatusCodeResponses))
	for code, r := range in.StatusCodeResponses {
		if r != nil {
			out.Responses.StatusCodeResponses[code] = *convert(r)
		}
	}
	out.Produces = slices.Sorted(maps.Keys(produces))
}

// content returns the schema of a body, which v2 has once for all media types.
func (c converter) content(forms map[string]*spec3.MediaType) *spec.Schema {
	for _, media := range slices.Sorted(maps.Keys(forms)) {
		if form := forms[media]; form != nil && form.Schema != nil {
			s := c.schema(form.Schema)
			return &s
		}
	}
	return nil
}

// parameters omits cookies, which v2 does not have, and references, which API servers do not use.
func (c converter) parameters(in []*spec3.Parameter) (out []spec.Parameter) {
	for _, p := range in {
		if p == nil || p.Ref.String() != "" || p.In == "cookie" {
			continue
		}
		v2 := spec.Parameter{
			ParamProps:       spec.ParamProps{Name: p.Name, In: p.In, Description: p.Description, Required: p.Required},
			SimpleSchema:     spec.SimpleSchema{Type: "string"},
			VendorExtensible: p.VendorExtensible,
		}
		v2.UniqueItems = true // as kube-apiserver
		if p.Schema != nil && len(p.Schema.Type) == 1 {
			switch t := p.Schema.Type[0]; t {
			case "integer", "number", "boolean":
				v2.Type, v2.Format = t, p.Schema.Format
			case "array":
				v2.Type, v2.Items = t, &spec.Items{SimpleSchema: spec.SimpleSchema{Type: "string"}}
			}
		}
		out = append(out, v2)
	}
	return out
}
