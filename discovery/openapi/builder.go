package openapi

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource/rest"
)

const (
	mediaJSON     = "application/json"
	mediaYAML     = "application/yaml"
	mediaProtobuf = "application/vnd.kubernetes.protobuf"
)

// builder makes the document of one group/version.
type builder struct {
	version string
	paths   map[string]pathItem
	schemas *schemas
	// raw are the schemas of kinds that are no Go types, encoded.
	raw map[string]json.RawMessage
	// failures are the kinds that are described without their schemas.
	failures []error
}

func newBuilder(version string) *builder {
	return &builder{
		version: version, paths: map[string]pathItem{}, raw: map[string]json.RawMessage{},
		schemas: &schemas{byName: map[string]*schemaType{}},
	}
}

// encode returns the document's JSON. The components are put together by hand,
// because encoding/json would read all raw schemas once more.
func (b *builder) encode() ([]byte, error) {
	head, err := json.Marshal(preamble{OpenAPI: "3.0.0", Info: info{Title: "Kubernetes", Version: "unversioned"}, Paths: b.paths})
	if err != nil {
		return nil, err
	}
	all := maps.Clone(b.raw)
	for name, s := range b.schemas.byName {
		if all[name] != nil {
			continue // two kinds of one name: the first
		}
		if all[name], err = json.Marshal(s); err != nil {
			return nil, err
		}
	}
	var out bytes.Buffer
	size := len(head)
	for name, data := range all {
		size += len(name) + len(data) + len(`"":,`)
	}
	out.Grow(size + len(`,"components":{"schemas":{}}}`))
	out.Write(bytes.TrimSuffix(head, []byte("}")))
	out.WriteString(`,"components":{"schemas":{`)
	for i, name := range slices.Sorted(maps.Keys(all)) {
		if i > 0 {
			out.WriteByte(',')
		}
		quoted, err := json.Marshal(name)
		if err != nil {
			return nil, err
		}
		out.Write(quoted)
		out.WriteByte(':')
		out.Write(all[name])
	}
	out.WriteString(`}}}`)
	return out.Bytes(), nil
}

// model puts the schema of a kind into the document and returns its name; ""
// if nothing is known of it.
func (b *builder) model(k *rest.Kind) string {
	if k.Schema != nil {
		return b.custom(k)
	}
	id := k.GVK(b.version)
	example := k.Codec.StrategicMerge(id)
	if example == nil {
		return ""
	}
	return b.typed(reflect.TypeOf(example).Elem(), id)
}

// foreign is model for a subresource whose bodies are another kind.
func (b *builder) foreign(k *rest.Kind, sub *rest.Subresource) string {
	codec := k.Codec
	if sub.Projection != nil {
		codec = sub.Projection.Kind.Codec
	}
	if example := codec.StrategicMerge(sub.GVK); example != nil {
		return b.typed(reflect.TypeOf(example).Elem(), sub.GVK)
	}
	return ""
}

// typed adds a Go type as the schema of a kind.
func (b *builder) typed(t reflect.Type, id schema.GroupVersionKind) string {
	name := b.schemas.add(t)
	s := b.schemas.byName[name]
	mark := gvk{Group: id.Group, Kind: id.Kind, Version: id.Version}
	if !slices.Contains(s.GVKs, mark) {
		s.GVKs = append(s.GVKs, mark)
	}
	return name
}

// meta adds one of the kinds that every group speaks (Status, DeleteOptions).
func (b *builder) meta(t reflect.Type) string {
	return b.typed(t, schema.GroupVersionKind{Version: "v1", Kind: t.Name()})
}

// list makes the schema of the kind's list.
func (b *builder) list(k *rest.Kind, model string) string {
	if model == "" {
		return ""
	}
	id := k.GVK(b.version).GroupVersion().WithKind(k.List())
	name := strings.TrimSuffix(model, k.Kind) + k.List()
	if b.schemas.byName[name] != nil {
		return name
	}
	docs := metav1.TypeMeta{}.SwaggerDoc()
	lists := metav1.PartialObjectMetadataList{}.SwaggerDoc()
	b.schemas.byName[name] = &schemaType{
		Type: "object", Required: []string{"items"}, Description: k.List() + " is a list of " + k.Kind,
		Properties: map[string]*schemaType{
			"apiVersion": {Type: "string", Description: docs["apiVersion"]},
			"kind":       {Type: "string", Description: docs["kind"]},
			"metadata":   {AllOf: []*schemaType{ref(b.schemas.add(reflect.TypeFor[metav1.ListMeta]()))}, Description: lists["metadata"]},
			"items": {
				Type: "array", Items: ref(model),
				Description: "List of " + k.Resource + ". More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md",
			},
		},
		GVKs: []gvk{{Group: id.Group, Kind: id.Kind, Version: id.Version}},
	}
	if k.Schema != nil {
		b.schemas.byName[name].SelectableFields = selectable(k)
	}
	return name
}
