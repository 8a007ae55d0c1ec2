package openapi

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
