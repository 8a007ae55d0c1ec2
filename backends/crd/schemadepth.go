package crd

import (
	"context"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/resource/rest"
)

// maxSchemaDepth bounds the nesting of schemas. The cost of validating a schema of a given
// size, and the length of the errors, grow with the square of its depth: a body of 60 KB,
// 2,000 levels deep, took 70 GB. The deepest schemas in use have about 30 levels.
const maxSchemaDepth = 128

// checkSchemaDepth rejects definitions with schemas that are nested too deep, before any other
// processing. A definition that another server has stored so can be changed.
func checkSchemaDepth(_ context.Context, _ string, obj, old rest.Object) error {
	crd := asDefinition(obj)
	path := deepSchema(crd)
	if path == nil || old != nil && deepSchema(asDefinition(old)) != nil {
		return nil
	}
	return apierrors.NewInvalid(apiextensionsv1.Kind("CustomResourceDefinition"), crd.Name, field.ErrorList{
		field.Forbidden(path, fmt.Sprintf("schemas may not be nested more than %d levels deep", maxSchemaDepth)),
	})
}

// deepSchema returns the path of the first schema that is nested too deep; nil: there is
// none.
func deepSchema(crd *apiextensionsv1.CustomResourceDefinition) *field.Path {
	for i, version := range crd.Spec.Versions {
		if version.Schema != nil && !schemaWithin(version.Schema.OpenAPIV3Schema, maxSchemaDepth) {
			return field.NewPath("spec", "versions").Index(i).Child("schema", "openAPIV3Schema")
		}
	}
	return nil
}

// schemaWithin reports whether a schema has at most depth levels.
func schemaWithin(s *apiextensionsv1.JSONSchemaProps, depth int) bool {
	if s == nil {
		return true
	}
	if depth == 0 {
		return false
	}
	if s.Items != nil && !(schemaWithin(s.Items.Schema, depth-1) && allWithin(s.Items.JSONSchemas, depth-1)) {
		return false
	}
	for _, all := range [...][]apiextensionsv1.JSONSchemaProps{s.AllOf, s.OneOf, s.AnyOf} {
		if !allWithin(all, depth-1) {
			return false
		}
	}
	for _, named := range [...]map[string]apiextensionsv1.JSONSchemaProps{s.Properties, s.PatternProperties, s.Definitions} {
		for name := range named {
			if inner := named[name]; !schemaWithin(&inner, depth-1) {
				return false
			}
		}
	}
	for _, dependency := range s.Dependencies {
		if !schemaWithin(dependency.Schema, depth-1) {
			return false
		}
	}
	for _, other := range [...]*apiextensionsv1.JSONSchemaPropsOrBool{s.AdditionalProperties, s.AdditionalItems} {
		if other != nil && !schemaWithin(other.Schema, depth-1) {
			return false
		}
	}
	return schemaWithin(s.Not, depth-1)
}

func allWithin(schemas []apiextensionsv1.JSONSchemaProps, depth int) bool {
	for i := range schemas {
		if !schemaWithin(&schemas[i], depth) {
			return false
		}
	}
	return true
}
