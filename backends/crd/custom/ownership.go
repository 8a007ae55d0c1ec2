package custom

import (
	"fmt"
	"slices"
	"strings"

	generatedopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// newOwnership returns the type converter for field ownership of a definition's objects,
// made from the schemas of all versions and those of metadata.
func newOwnership(o *Outline, b *built) (managedfields.TypeConverter, error) {
	ref := func(model string) spec.Ref { return spec.MustCreateRef("#/definitions/" + model) }
	definitions := generatedopenapi.GetOpenAPIDefinitions(ref)
	models := map[string]*spec.Schema{}
	for _, model := range []string{
		metav1.ObjectMeta{}.OpenAPIModelName(), metav1.OwnerReference{}.OpenAPIModelName(), metav1.ManagedFieldsEntry{}.OpenAPIModelName(),
		metav1.FieldsV1{}.OpenAPIModelName(), metav1.Time{}.OpenAPIModelName(),
	} {
		models[model] = new(definitions[model].Schema)
	}
	labels := strings.Split(o.Spec.Group, ".")
	slices.Reverse(labels)
	group, kind := strings.Join(labels, "."), o.Status.AcceptedNames.Kind
	for version, s := range b.versions {
		root := s.structural.ToKubeOpenAPI()
		if root.Properties == nil {
			root.Properties = map[string]spec.Schema{}
		}
		root.Properties["apiVersion"] = *spec.StringProperty()
		root.Properties["kind"] = *spec.StringProperty()
		root.Properties["metadata"] = spec.Schema{SchemaProps: spec.SchemaProps{Ref: ref(metav1.ObjectMeta{}.OpenAPIModelName())}}
		root.AddExtension("x-kubernetes-group-version-kind", []any{map[string]any{
			"group": o.Spec.Group, "version": version, "kind": kind,
		}})
		models[fmt.Sprintf("%s.%s.%s", group, version, kind)] = root
	}
	return managedfields.NewTypeConverter(models, o.Spec.PreserveUnknownFields)
}
