package crd

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	schemavalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"portico/resource/rest"
)

// warnings warns of the parts of a definition that have no effect: formats that are not
// validated, and sets of values that cannot be compared. An update only warns of new ones.
func (d *definitions) warnings(_ context.Context, obj, old rest.Object) []string {
	if old != nil && sameGeneration(obj, old) {
		return nil
	}
	in, errs := d.internal(obj)
	if errs != nil {
		return nil
	}
	found := ineffective(&in.Spec)
	if old == nil {
		return found
	}
	was, errs := d.internal(old)
	if errs != nil {
		return found
	}
	known := ineffective(&was.Spec)
	return slices.DeleteFunc(found, func(text string) bool { return slices.Contains(known, text) })
}

func ineffective(in *apiextensions.CustomResourceDefinitionSpec) []string {
	var formats, sets []string
	at := environment.DefaultCompatibilityVersion()
	check := func(s *apiextensions.JSONSchemaProps) bool {
		if s.Format != "" {
			one := &spec.Schema{SchemaProps: spec.SchemaProps{Format: s.Format, Type: []string{s.Type}}}
			for _, format := range schemavalidation.GetUnrecognizedFormats(one, at) {
				formats = append(formats, fmt.Sprintf("unrecognized format %q", format))
			}
		}
		if s.XListType != nil && *s.XListType == "set" && s.Items != nil && s.Items.Schema != nil {
			if kind := s.Items.Schema.Type; kind == "object" || kind == "array" {
				sets = append(sets, fmt.Sprintf("x-kubernetes-list-type: set for items of type %q is not supported by server-side apply or CEL validation rules", kind))
			}
		}
		return false // go on
	}
	if in.Validation != nil && in.Validation.OpenAPIV3Schema != nil {
		validation.SchemaHas(in.Validation.OpenAPIV3Schema, check)
	}
	for _, v := range in.Versions {
		if v.Schema != nil && v.Schema.OpenAPIV3Schema != nil {
			validation.SchemaHas(v.Schema.OpenAPIV3Schema, check)
		}
	}
	slices.Sort(sets)
	return append(formats, slices.Compact(sets)...)
}
