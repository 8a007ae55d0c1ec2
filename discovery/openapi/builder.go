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

// The part of OpenAPI 3.0 (spec.openapis.org/oas/v3.0.0) that the documents
// use, in the field order they are written in.

// preamble is a document without its components.
type preamble struct {
	OpenAPI string              `json:"openapi"`
	Info    info                `json:"info"`
	Paths   map[string]pathItem `json:"paths"`
}

type info struct {
	Title   string `json:"title"`
	Version string `json:"version"`
}

// pathItem maps a lower-case method to its operation, and "parameters" to the
// parameters that all of them share.
type pathItem map[string]any

type operation struct {
	Tags        []string            `json:"tags,omitempty"`
	Description string              `json:"description,omitempty"`
	OperationID string              `json:"operationId"`
	Parameters  []parameter         `json:"parameters,omitempty"`
	RequestBody *body               `json:"requestBody,omitempty"`
	Responses   map[string]response `json:"responses"`
	Action      string              `json:"x-kubernetes-action,omitempty"`
	GVK         *gvk                `json:"x-kubernetes-group-version-kind,omitempty"`
}

type parameter struct {
	Name        string      `json:"name"`
	In          string      `json:"in"`
	Description string      `json:"description,omitempty"`
	Required    bool        `json:"required,omitempty"`
	Schema      *schemaType `json:"schema"`
}

type body struct {
	Required bool             `json:"required,omitempty"`
	Content  map[string]media `json:"content"`
}

type response struct {
	Description string           `json:"description"`
	Content     map[string]media `json:"content,omitempty"`
}

type media struct {
	Schema *schemaType `json:"schema,omitempty"`
}

type gvk struct {
	Group   string `json:"group"`
	Kind    string `json:"kind"`
	Version string `json:"version"`
}

type selectableField struct {
	FieldPath string `json:"fieldPath"`
}

type schemaType struct {
	Ref                  string                 `json:"$ref,omitempty"`
	AllOf                []*schemaType          `json:"allOf,omitempty"`
	OneOf                []*schemaType          `json:"oneOf,omitempty"`
	Type                 string                 `json:"type,omitempty"`
	Format               string                 `json:"format,omitempty"`
	Description          string                 `json:"description,omitempty"`
	Default              any                    `json:"default,omitempty"`
	Required             []string               `json:"required,omitempty"`
	Properties           map[string]*schemaType `json:"properties,omitempty"`
	AdditionalProperties *schemaType            `json:"additionalProperties,omitempty"`
	Items                *schemaType            `json:"items,omitempty"`
	UniqueItems          bool                   `json:"uniqueItems,omitempty"`
	GVKs                 []gvk                  `json:"x-kubernetes-group-version-kind,omitempty"`
	MapType              string                 `json:"x-kubernetes-map-type,omitempty"`
	PatchStrategy        string                 `json:"x-kubernetes-patch-strategy,omitempty"`
	PatchMergeKey        string                 `json:"x-kubernetes-patch-merge-key,omitempty"`
	ListType             string                 `json:"x-kubernetes-list-type,omitempty"`
	ListMapKeys          []string               `json:"x-kubernetes-list-map-keys,omitempty"`
	SelectableFields     []selectableField      `json:"x-kubernetes-selectable-fields,omitempty"`
}

// refPrefix leads from a document to one of its schemas.
const refPrefix = "#/components/schemas/"

func ref(name string) *schemaType { return &schemaType{Ref: refPrefix + name} }
