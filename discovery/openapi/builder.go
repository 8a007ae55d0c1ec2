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
	// raw are the encoded schemas of kinds that are not Go types.
	raw map[string]json.RawMessage
	// failures are the errors of kinds without schema.
	failures []error
}

func newBuilder(version string) *builder {
	return &builder{
		version: version, paths: map[string]pathItem{}, raw: map[string]json.RawMessage{},
		schemas: &schemas{byName: map[string]*schemaType{}},
	}
}

// encode returns the JSON of the document. The components are concatenated, because encoding/json
// would scan all raw schemas again.
func (b *builder) encode() ([]byte, error) {
	head, err := json.Marshal(preamble{OpenAPI: "3.0.0", Info: info{Title: "Kubernetes", Version: "unversioned"}, Paths: b.paths})
	if err != nil {
		return nil, err
	}
	all := maps.Clone(b.raw)
	for name, s := range b.schemas.byName {
		if all[name] != nil {
			continue // the first of two kinds with one name counts
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

// model adds the schema of a kind and returns its name; "" if there is none.
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

// foreign is model for a subresource with another kind.
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

// typed adds the schema of a Go type for a kind.
func (b *builder) typed(t reflect.Type, id schema.GroupVersionKind) string {
	name := b.schemas.add(t)
	s := b.schemas.byName[name]
	entry := gvk{Group: id.Group, Kind: id.Kind, Version: id.Version}
	if !slices.Contains(s.GVKs, entry) {
		s.GVKs = append(s.GVKs, entry)
	}
	return name
}

// meta adds a kind that all groups use (Status, DeleteOptions).
func (b *builder) meta(t reflect.Type) string {
	return b.typed(t, schema.GroupVersionKind{Version: "v1", Kind: t.Name()})
}

// list adds the schema of the list of a kind.
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

// The part of OpenAPI 3.0 (spec.openapis.org/oas/v3.0.0) that the documents use, in the order of
// encoding.

// preamble is a document without components.
type preamble struct {
	OpenAPI string              `json:"openapi"`
	Info    info                `json:"info"`
	Paths   map[string]pathItem `json:"paths"`
}

type info struct {
	Title   string `json:"title"`
	Version string `json:"version"`
}

// pathItem maps lower-case methods to operations, and "parameters" to their common parameters.
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

// refPrefix precedes the name of a schema in references.
const refPrefix = "#/components/schemas/"

func ref(name string) *schemaType { return &schemaType{Ref: refPrefix + name} }
