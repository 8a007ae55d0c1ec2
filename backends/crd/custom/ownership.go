package custom

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// metaDefinition is the name by which the models refer to metadata.
const metaDefinition = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"

// newOwnership returns the type converter for field ownership of a definition's objects,
// made from the schemas of all versions and that of metadata.
func newOwnership(o *Outline, b *built) (managedfields.TypeConverter, error) {
	models := map[string]*spec.Schema{metaDefinition: metaSchema()}
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
		root.Properties["metadata"] = *spec.RefSchema("#/definitions/" + metaDefinition)
		root.AddExtension("x-kubernetes-group-version-kind", []any{map[string]any{
			"group": o.Spec.Group, "version": version, "kind": kind,
		}})
		models[fmt.Sprintf("%s.%s.%s", group, version, kind)] = root
	}
	return managedfields.NewTypeConverter(models, o.Spec.PreserveUnknownFields)
}

// metaSchema returns the schema of metadata, with the list and map types that merging needs
// (k8s.io/apimachinery/pkg/apis/meta/v1/types.go).
func metaSchema() *spec.Schema {
	text := *spec.StringProperty()
	list := func(items spec.Schema, kind string, keys ...any) spec.Schema {
		s := *spec.ArrayProperty(&items)
		s.AddExtension("x-kubernetes-list-type", kind)
		if len(keys) > 0 {
			s.AddExtension("x-kubernetes-list-map-keys", keys)
		}
		return s
	}
	object := func(properties map[string]spec.Schema) spec.Schema {
		return spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}, Properties: properties}}
	}
	owner := object(map[string]spec.Schema{
		"apiVersion": text, "kind": text, "name": text, "uid": text,
		"controller": *spec.BooleanProperty(), "blockOwnerDeletion": *spec.BooleanProperty(),
	})
	owner.AddExtension("x-kubernetes-map-type", "atomic")
	entry := object(map[string]spec.Schema{
		"apiVersion": text, "fieldsType": text, "manager": text, "operation": text, "subresource": text, "time": text,
		"fieldsV1": object(nil),
	})
	root := object(map[string]spec.Schema{
		"annotations": *spec.MapProperty(&text), "labels": *spec.MapProperty(&text),
		"creationTimestamp": text, "deletionTimestamp": text, "generateName": text, "name": text, "namespace": text,
		"resourceVersion": text, "selfLink": text, "uid": text,
		"deletionGracePeriodSeconds": *spec.Int64Property(), "generation": *spec.Int64Property(),
		"finalizers":      list(text, "set"),
		"ownerReferences": list(owner, "map", "uid"),
		"managedFields":   list(entry, "atomic"),
	})
	return &root
}
