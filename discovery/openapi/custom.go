package openapi

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"portico/resource/rest"
)

// Extensions of schemas.
const (
	extensionGVK              = "x-kubernetes-group-version-kind"
	extensionSelectableFields = "x-kubernetes-selectable-fields"
	extensionEmbedded         = "x-kubernetes-embedded-resource"
)

// custom adds the schema of a kind that is not a Go type and returns its model name. A kind without
// schema, or with one that fails, is an object without properties.
func (b *builder) custom(k *rest.Kind) string {
	id := k.GVK(b.version)
	name := customName(id)
	s, err := k.Schema(b.version)
	if err != nil {
		b.failures = append(b.failures, fmt.Errorf("make schema of %s: %w", id, err))
	}
	var root spec.Schema
	if s == nil || err != nil {
		root.Type = spec.StringOrArray{"object"}
	} else {
		root = b.complete(s)
	}
	b.addRaw(k, id, name, &root)
	return name
}

// complete returns a schema with the fields of every object. s is shared and not modified.
func (b *builder) complete(s *spec.Schema) spec.Schema {
	meta := b.models.add(metav1.ObjectMeta{})
	doc := metav1.PartialObjectMetadata{}.SwaggerDoc()["metadata"]
	parts := commonParts{
		typeMeta: metav1.TypeMeta{}.SwaggerDoc(),
		// Siblings of $ref are ignored, so it is wrapped.
		metadata: *new(spec.Schema).WithAllOf(*spec.RefSchema(refPrefix + meta)).WithDescription(doc),
	}
	root, _ := parts.embedded(*s)
	root.Properties = maps.Clone(root.Properties)
	parts.set(&root)
	return root
}

// commonParts are the properties of every object.
type commonParts struct {
	typeMeta map[string]string // descriptions
	metadata spec.Schema
}

// set adds the properties to a schema. Its Properties are modified.
func (c *commonParts) set(s *spec.Schema) {
	for _, name := range []string{"apiVersion", "kind"} {
		s.SetProperty(name, *spec.StringProperty().WithDescription(c.typeMeta[name]))
	}
	s.SetProperty("metadata", c.metadata)
}

// embedded completes the embedded resources in a schema. It copies what it changes.
func (c *commonParts) embedded(s spec.Schema) (out spec.Schema, changed bool) {
	out = s
	copied := false
	for name, p := range s.Properties {
		inner, changed := c.embedded(p)
		if !changed {
			continue
		}
		if !copied {
			out.Properties, copied = maps.Clone(s.Properties), true
		}
		out.Properties[name] = inner
	}
	changed = copied
	if s.Items != nil && s.Items.Schema != nil {
		if inner, ok := c.embedded(*s.Items.Schema); ok {
			out.Items, changed = &spec.SchemaOrArray{Schema: &inner}, true
		}
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		if inner, ok := c.embedded(*s.AdditionalProperties.Schema); ok {
			out.AdditionalProperties, changed = &spec.SchemaOrBool{Allows: s.AdditionalProperties.Allows, Schema: &inner}, true
		}
	}
	if is, _ := s.Extensions.GetBool(extensionEmbedded); !is {
		return out, changed
	}
	if !copied {
		out.Properties = maps.Clone(s.Properties)
	}
	c.set(&out)
	out.Required = slices.Clone(s.Required)
	for _, name := range []string{"kind", "apiVersion"} {
		if !slices.Contains(out.Required, name) {
			out.Required = append(out.Required, name)
		}
	}
	return out, true
}

// selectable returns the published selectable fields of a kind; nil: none.
func selectable(k *rest.Kind) []selectableField {
	var out []selectableField
	for _, label := range k.FieldLabels {
		out = append(out, selectableField{strings.TrimPrefix(label, ".")})
	}
	return out
}

// customName returns the model name of a kind that is not a Go type: the reversed group, the version
// and the kind.
func customName(id schema.GroupVersionKind) string {
	parts := strings.Split(id.Group, ".")
	slices.Reverse(parts)
	return strings.Join(parts, ".") + "." + id.Version + "." + id.Kind
}
