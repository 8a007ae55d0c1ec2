package rest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Bounds of a document.
const (
	// MaxDocument is in bytes.
	MaxDocument = 8 << 20
	// maxDepth bounds the nesting of values.
	maxDepth = 64
	// maxValues bounds the objects, lists and members: each takes some hundred bytes when decoded.
	maxValues = 300_000
)

// document is the supported part of an OpenAPI 3 document. A field with a value of another type is
// empty.
type document struct {
	OpenAPI    string               `json:"openapi"`
	Swagger    string               `json:"swagger,omitempty"`
	Info       info                 `json:"info"`
	Servers    []server             `json:"servers,omitempty"`
	Paths      map[string]*pathItem `json:"paths"`
	Components components           `json:"components"`
}

type info struct {
	Title       string `json:"title"`
	Version     string `json:"version"`
	Description string `json:"description,omitempty"`
}

type server struct {
	URL string `json:"url"`
}

type components struct {
	Schemas       map[string]*schema    `json:"schemas,omitempty"`
	Responses     map[string]*response  `json:"responses,omitempty"`
	Parameters    map[string]*parameter `json:"parameters,omitempty"`
	Examples      map[string]*example   `json:"examples,omitempty"`
	RequestBodies map[string]*body      `json:"requestBodies,omitempty"`
	Headers       map[string]*header    `json:"headers,omitempty"`
}

type pathItem struct {
	Summary     string       `json:"summary,omitempty"`
	Description string       `json:"description,omitempty"`
	Parameters  []*parameter `json:"parameters,omitempty"`
	Get         *operation   `json:"get,omitempty"`
	Put         *operation   `json:"put,omitempty"`
	Post        *operation   `json:"post,omitempty"`
	Delete      *operation   `json:"delete,omitempty"`
	Patch       *operation   `json:"patch,omitempty"`
}

type operation struct {
	ID          string               `json:"operationId,omitempty"`
	Summary     string               `json:"summary,omitempty"`
	Description string               `json:"description,omitempty"`
	Tags        []string             `json:"tags,omitempty"`
	Deprecated  bool                 `json:"deprecated,omitempty"`
	Parameters  []*parameter         `json:"parameters,omitempty"`
	Body        *body                `json:"requestBody,omitempty"`
	Responses   map[string]*response `json:"responses"`
	Action      string               `json:"x-kubernetes-action,omitempty"`
	GVK         *gvk                 `json:"x-kubernetes-group-version-kind,omitempty"`
}

type parameter struct {
	Ref  string `json:"$ref,omitempty"`
	Name string `json:"name,omitempty"`
	In   string `json:"in,omitempty"`
	value
}

type header struct {
	Ref string `json:"$ref,omitempty"`
	value
}

// value describes the value of a parameter or a header.
type value struct {
	Description     string `json:"description,omitempty"`
	Required        bool   `json:"required,omitempty"`
	Deprecated      bool   `json:"deprecated,omitempty"`
	AllowEmptyValue bool   `json:"allowEmptyValue,omitempty"`
	serialization
	Schema   *schema             `json:"schema,omitempty"`
	Example  json.RawMessage     `json:"example,omitempty"`
	Examples map[string]*example `json:"examples,omitempty"`
	// Content has one media type, instead of a schema.
	Content map[string]*form `json:"content,omitempty"`
}

// serialization is how lists and objects are written.
type serialization struct {
	Style         string `json:"style,omitempty"`
	Explode       *bool  `json:"explode,omitempty"`
	AllowReserved bool   `json:"allowReserved,omitempty"`
}

type body struct {
	Ref         string           `json:"$ref,omitempty"`
	Description string           `json:"description,omitempty"`
	Required    bool             `json:"required,omitempty"`
	Content     map[string]*form `json:"content,omitempty"`
}

type response struct {
	Ref         string             `json:"$ref,omitempty"`
	Description string             `json:"description,omitempty"`
	Headers     map[string]*header `json:"headers,omitempty"`
	Content     map[string]*form   `json:"content,omitempty"`
}

// form is a body in one media type.
type form struct {
	Schema   *schema              `json:"schema,omitempty"`
	Example  json.RawMessage      `json:"example,omitempty"`
	Examples map[string]*example  `json:"examples,omitempty"`
	Encoding map[string]*encoding `json:"encoding,omitempty"`
}

// encoding is the encoding of one field of a form.
type encoding struct {
	ContentType string             `json:"contentType,omitempty"`
	Headers     map[string]*header `json:"headers,omitempty"`
	serialization
}

type example struct {
	Ref           string          `json:"$ref,omitempty"`
	Summary       string          `json:"summary,omitempty"`
	Description   string          `json:"description,omitempty"`
	Value         json.RawMessage `json:"value,omitempty"`
	ExternalValue string          `json:"externalValue,omitempty"`
}

type schema struct {
	Ref         string `json:"$ref,omitempty"`
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`
	// Type is a string; in OpenAPI 3.1 it may be a list.
	Type       any                `json:"type,omitempty"`
	Format     string             `json:"format,omitempty"`
	Nullable   bool               `json:"nullable,omitempty"`
	Deprecated bool               `json:"deprecated,omitempty"`
	ReadOnly   bool               `json:"readOnly,omitempty"`
	WriteOnly  bool               `json:"writeOnly,omitempty"`
	Default    json.RawMessage    `json:"default,omitempty"`
	Example    json.RawMessage    `json:"example,omitempty"`
	Enum       []json.RawMessage  `json:"enum,omitempty"`
	Required   []string           `json:"required,omitempty"`
	Properties map[string]*schema `json:"properties,omitempty"`
	Items      *schema            `json:"items,omitempty"`
	Values     *schema            `json:"additionalProperties,omitempty"`
	AllOf      []*schema          `json:"allOf,omitempty"`
	OneOf      []*schema          `json:"oneOf,omitempty"`
	AnyOf      []*schema          `json:"anyOf,omitempty"`
	Not        *schema            `json:"not,omitempty"`
	limits
	// Anything is set for schemas without other fields: some readers ignore empty schemas.
	Anything bool  `json:"x-kubernetes-preserve-unknown-fields,omitempty"`
	GVKs     []gvk `json:"x-kubernetes-group-version-kind,omitempty"`
}

// limits of values. ExclusiveMinimum and ExclusiveMaximum are numbers in OpenAPI 3.1, and then not
// published.
type limits struct {
	Minimum          number `json:"minimum,omitempty"`
	Maximum          number `json:"maximum,omitempty"`
	ExclusiveMinimum bool   `json:"exclusiveMinimum,omitempty"`
	ExclusiveMaximum bool   `json:"exclusiveMaximum,omitempty"`
	MultipleOf       number `json:"multipleOf,omitempty"`
	MinLength        number `json:"minLength,omitempty"`
	MaxLength        number `json:"maxLength,omitempty"`
	Pattern          string `json:"pattern,omitempty"`
	MinItems         number `json:"minItems,omitempty"`
	MaxItems         number `json:"maxItems,omitempty"`
	UniqueItems      bool   `json:"uniqueItems,omitempty"`
	MinProperties    number `json:"minProperties,omitempty"`
	MaxProperties    number `json:"maxProperties,omitempty"`
}

// number is a number as it is written, or "" for no number.
type number string

// UnmarshalJSON leaves a value of another type empty.
func (n *number) UnmarshalJSON(data []byte) error {
	if c := data[0]; c == '-' || c >= '0' && c <= '9' {
		*n = number(data)
	}
	return nil
}

func (n number) MarshalJSON() ([]byte, error) { return []byte(n), nil }

type gvk struct {
	Group   string `json:"group"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
}

// read decodes a document, within the bounds.
func read(data []byte) (*document, error) {
	if len(data) > MaxDocument {
		return nil, fmt.Errorf("the OpenAPI document is larger than %d bytes", MaxDocument)
	}
	if err := measure(data); err != nil {
		return nil, err
	}
	doc := &document{}
	var mistyped *json.UnmarshalTypeError
	if err := json.Unmarshal(data, doc); err != nil && !errors.As(err, &mistyped) {
		return nil, fmt.Errorf("decode OpenAPI document: it must be JSON; YAML is not read: %w", err)
	}
	switch {
	case doc.Swagger != "":
		return nil, errors.New("the document is OpenAPI 2 (swagger); version 3 is needed")
	case !strings.HasPrefix(doc.OpenAPI, "3."):
		return nil, errors.New("the document is not OpenAPI 3: it has no field openapi of 3.x")
	}
	return doc, nil
}

// measure bounds the cost of decoding. data need not be JSON.
func measure(data []byte) error {
	depth, values := 0, 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			for i++; i < len(data) && data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
			values++
		case '}', ']':
			depth--
		case ',':
			values++
		}
		if depth > maxDepth {
			return fmt.Errorf("the OpenAPI document is nested more than %d deep", maxDepth)
		}
		if values > maxValues {
			return fmt.Errorf("the OpenAPI document has more than %d values", maxValues)
		}
	}
	return nil
}
