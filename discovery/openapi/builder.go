package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

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
	cbor    bool
	paths   map[string]operations
	models  *models
	// raw are the encoded schemas of kinds that are not Go types, and of their lists.
	raw map[string]json.RawMessage
	// failures are the errors of kinds without schema.
	failures []error
}

// newBuilder returns a builder of a document of kinds. With cbor, operations have media types of CBOR.
func newBuilder(version string, cbor bool, kinds ...*rest.Kind) *builder {
	return &builder{
		version: version, cbor: cbor, paths: map[string]operations{}, raw: map[string]json.RawMessage{}, models: newModels(kinds),
	}
}

// encode returns the JSON of the document. The components are concatenated, because encoding/json
// would scan all raw schemas again.
func (b *builder) encode() ([]byte, error) {
	items := make(map[string]map[string]any, len(b.paths))
	for url, ops := range b.paths {
		items[url] = ops.item()
	}
	head, err := json.Marshal(preamble{OpenAPI: "3.0.0", Info: info{Title: "Kubernetes", Version: "unversioned"}, Paths: items})
	if err != nil {
		return nil, err
	}
	schemas, err := b.models.schemas()
	if err != nil {
		return nil, err
	}
	all := maps.Clone(b.raw)
	for name, s := range schemas {
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
	out.WriteString(`},"securitySchemes":{"BearerToken":{"type":"apiKey","description":"Bearer Token authentication","name":"authorization","in":"header"}}}}`)
	return out.Bytes(), nil
}

// model adds the schema of a kind and returns its name; "" if there is none.
func (b *builder) model(k *rest.Kind) string {
	if k.Schema != nil {
		return b.custom(k)
	}
	return b.models.ofKind(k.Codec, k.GVK(b.version))
}

// foreign is model for a subresource with another kind.
func (b *builder) foreign(k *rest.Kind, sub *rest.Subresource) string {
	codec := k.Codec
	if sub.Projection != nil {
		codec = sub.Projection.Kind.Codec
	}
	return b.models.ofKind(codec, sub.GVK)
}

// list adds the schema of a kind's list and returns its name. It returns "" if the kind has no model.
func (b *builder) list(k *rest.Kind, model string) string {
	id := k.GVK(b.version).GroupVersion().WithKind(k.List())
	name := strings.TrimSuffix(model, k.Kind) + k.List()
	switch {
	case model == "":
		return ""
	case k.Schema == nil:
		return b.models.addModel(name, id)
	case b.raw[name] != nil:
		return name
	}
	docs, lists := metav1.TypeMeta{}.SwaggerDoc(), metav1.PartialObjectMetadataList{}.SwaggerDoc()
	meta := *new(spec.Schema).WithAllOf(*spec.RefSchema(refPrefix + b.models.add(metav1.ListMeta{}))).WithDescription(lists["metadata"])
	items := spec.ArrayProperty(spec.RefSchema(refPrefix + model)).
		WithDescription("List of " + k.Resource + ". More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md")
	s := new(spec.Schema).Typed("object", "").WithDescription(k.List()+" is a list of "+k.Kind).WithRequired("items").
		SetProperty("apiVersion", *spec.StringProperty().WithDescription(docs["apiVersion"])).
		SetProperty("kind", *spec.StringProperty().WithDescription(docs["kind"])).
		SetProperty("metadata", meta).SetProperty("items", *items)
	b.addRaw(k, id, name, s)
	return name
}

// addRaw adds the schema of a kind that is not a Go type, or of its list.
func (b *builder) addRaw(k *rest.Kind, id schema.GroupVersionKind, name string, s *spec.Schema) {
	s.Extensions = maps.Clone(s.Extensions)
	s.AddExtension(extensionGVK, extensionOf([]schema.GroupVersionKind{id}))
	if fields := selectable(k); fields != nil {
		s.AddExtension(extensionSelectableFields, fields)
	}
	data, err := json.Marshal(s)
	if err != nil {
		b.failures = append(b.failures, fmt.Errorf("encode schema of %s: %w", id, err))
		data = []byte(`{"type":"object"}`)
	}
	b.raw[name] = data
}

// The part of OpenAPI 3.0 (spec.openapis.org/oas/v3.0.0) that the documents use, in the order of
// encoding.

// preamble is a document without components.
type preamble struct {
	OpenAPI string                    `json:"openapi"`
	Info    info                      `json:"info"`
	Paths   map[string]map[string]any `json:"paths"`
}

type info struct {
	Title   string `json:"title"`
	Version string `json:"version"`
}

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
	Name        string     `json:"name"`
	In          string     `json:"in"`
	Description string     `json:"description,omitempty"`
	Required    bool       `json:"required,omitempty"`
	Schema      schemaType `json:"schema"`
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
	Schema schemaType `json:"schema"`
}

type gvk struct {
	Group   string `json:"group"`
	Kind    string `json:"kind"`
	Version string `json:"version"`
}

type selectableField struct {
	FieldPath string `json:"fieldPath"`
}

// schemaType is the schema of a parameter, or a reference to a model.
type schemaType struct {
	Ref         string `json:"$ref,omitempty"`
	Type        string `json:"type,omitempty"`
	UniqueItems bool   `json:"uniqueItems,omitempty"`
}

// operations are the operations of one path by lower-case method.
type operations map[string]*operation

// item returns the OpenAPI path item: parameters that all operations have are of the path.
func (ops operations) item() map[string]any {
	count := map[parameter]int{}
	for _, op := range ops {
		for _, p := range op.Parameters {
			count[p]++
		}
	}
	common := func(p parameter) bool { return count[p] == len(ops) }
	item := make(map[string]any, len(ops)+1)
	var shared []parameter
	for method, op := range ops {
		own := *op
		own.Parameters = nil
		for _, p := range op.Parameters {
			if !common(p) {
				own.Parameters = append(own.Parameters, p)
			} else if !slices.Contains(shared, p) {
				shared = append(shared, p)
			}
		}
		slices.SortFunc(own.Parameters, compareParameters)
		item[method] = own
	}
	if len(shared) > 0 {
		slices.SortFunc(shared, compareParameters)
		item["parameters"] = shared
	}
	return item
}

func compareParameters(a, b parameter) int { return strings.Compare(a.Name+" "+a.In, b.Name+" "+b.In) }
