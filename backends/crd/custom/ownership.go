package custom

import (
	"fmt"
	"slices"
	"strings"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	generatedopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// newOwnership returns the type converter for field ownership of a definition's objects,
// made from the schemas of all versions and of metadata. If preserving is true, unknown fields are permitted.
func newOwnership(o *Outline, b *built, preserving bool) (managedfields.TypeConverter, error) {
	ref := func(model string) spec.Ref { return spec.MustCreateRef("#/definitions/" + model) }
	definitions := generatedopenapi.GetOpenAPIDefinitions(ref)
	models := map[string]*spec.Schema{}
	for _, model := range []string{
		metav1.ObjectMeta{}.OpenAPIModelName(), metav1.OwnerReference{}.OpenAPIModelName(), metav1.ManagedFieldsEntry{}.OpenAPIModelName(),
		metav1.FieldsV1{}.OpenAPIModelName(), metav1.Time{}.OpenAPIModelName(),
	} {
		models[model] = new(definitions[model].Schema)
	}
	metadata := &spec.Schema{SchemaProps: spec.SchemaProps{Ref: ref(metav1.ObjectMeta{}.OpenAPIModelName())}}
	labels := strings.Split(o.Spec.Group, ".")
	slices.Reverse(labels)
	group, kind := strings.Join(labels, "."), o.Status.AcceptedNames.Kind
	for version, s := range b.versions {
		structural := s.structural
		if len(structuralschema.ValidateStructural(nil, structural)) > 0 { // of a definition that only another server accepts
			structural = &structuralschema.Structural{Generic: structuralschema.Generic{Type: "object"}, Extensions: structuralschema.Extensions{XPreserveUnknownFields: true}}
		}
		root := structural.ToKubeOpenAPI()
		complete(root, metadata, true)
		root.AddExtension("x-kubernetes-group-version-kind", []any{map[string]any{
			"group": o.Spec.Group, "version": version, "kind": kind,
		}})
		models[fmt.Sprintf("%s.%s.%s", group, version, kind)] = root
	}
	return managedfields.NewTypeConverter(models, preserving)
}

// complete adds the fields that every object has to the embedded resources in a schema, and to the
// schema itself if it describes an object.
func complete(s, metadata *spec.Schema, object bool) {
	inner := func(s *spec.Schema) {
		embedded, _ := s.Extensions.GetBool("x-kubernetes-embedded-resource")
		complete(s, metadata, embedded)
	}
	for name, p := range s.Properties {
		inner(&p)
		s.Properties[name] = p
	}
	if s.Items != nil && s.Items.Schema != nil {
		inner(s.Items.Schema)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		inner(s.AdditionalProperties.Schema)
	}
	if object {
		s.SetProperty("apiVersion", *spec.StringProperty())
		s.SetProperty("kind", *spec.StringProperty())
		s.SetProperty("metadata", *metadata)
	}
}
