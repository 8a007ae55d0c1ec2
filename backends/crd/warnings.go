package crd

import (
	"context"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	schemavalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"portico/resource/rest"
)

// definitionWarnings warns of the parts of a definition that have no effect: formats that are not
// validated, and sets of values that cannot be compared. An update only warns of new ones.
func definitionWarnings(_ context.Context, obj, old rest.Object) []string {
	if old != nil && sameGeneration(obj, old) {
		return nil
	}
	found := ineffective(asDefinition(obj))
	if old == nil || len(found) == 0 {
		return found
	}
	known := ineffective(asDefinition(old))
	return slices.DeleteFunc(found, func(text string) bool { return slices.Contains(known, text) })
}

func ineffective(crd *apiextensionsv1.CustomResourceDefinition) []string {
	var formats, sets []string
	at := environment.DefaultCompatibilityVersion()
	check := func(s *apiextensionsv1.JSONSchemaProps) {
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
	}
	for _, v := range crd.Spec.Versions {
		if v.Schema != nil {
			schemaWithin(v.Schema.OpenAPIV3Schema, maxSchemaDepth, check)
		}
	}
	slices.Sort(sets)
	return append(formats, slices.Compact(sets)...)
}
