package rest

import (
	"encoding/json"
	"os"
	"reflect"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// valid fails unless a document is valid OpenAPI 3.0.
func valid(t *testing.T, data []byte) {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(data)
	if err != nil {
		t.Errorf("load: %v", err)
		return
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Errorf("validate: %v", err)
	}
}

// complete is a document that describes parameters, bodies, responses and schemas in every way.
const complete = `{
 "openapi": "3.0.3", "info": {"title": "Notes", "version": "1"},
 "paths": {
  "/notes": {
   "summary": "all notes", "description": "of everybody",
   "parameters": [{"$ref": "#/components/parameters/Trace"}],
   "get": {
    "operationId": "list", "deprecated": true,
    "parameters": [
     {"name": "filter", "in": "query", "description": "what to list", "content": {"application/json": {"schema": {"type": "object"}, "example": {"limit": 3}}}},
     {"name": "where", "in": "query", "style": "deepObject", "explode": true, "schema": {"type": "object"}, "example": {"a": "b"}},
     {"name": "fields", "in": "query", "style": "pipeDelimited", "explode": false, "allowReserved": true, "schema": {"type": "array", "items": {"type": "string"}}},
     {"name": "flag", "in": "query", "deprecated": true, "allowEmptyValue": true, "schema": {"type": "boolean"}, "examples": {"on": {"summary": "on", "value": true}, "more": {"$ref": "#/components/examples/Off"}}},
     {"name": "X-Tenant", "in": "header", "required": true, "style": "simple", "explode": true, "schema": {"type": "string"}},
     {"name": "session", "in": "cookie", "style": "form", "schema": {"type": "string"}}
    ],
    "responses": {"200": {"description": "the notes", "headers": {
      "X-Total": {"description": "how many", "required": true, "schema": {"type": "integer"}, "example": 7},
      "X-Page": {"content": {"application/json": {"schema": {"type": "object"}}}},
      "X-Rate": {"$ref": "#/components/headers/Rate"}},
     "content": {"application/json": {"schema": {"type": "array", "items": {"$ref": "#/components/schemas/Note"}}, "examples": {"none": {"value": []}}}}}}
   },
   "post": {
    "operationId": "add",
    "requestBody": {"required": true, "content": {"multipart/form-data": {
     "schema": {"type": "object", "properties": {"picture": {"type": "string", "format": "binary"}, "tags": {"type": "array", "items": {"type": "string"}}}},
     "encoding": {"picture": {"contentType": "image/png", "headers": {"X-Width": {"schema": {"type": "integer"}}}}, "tags": {"style": "form", "explode": false, "allowReserved": true}}}}},
    "responses": {"201": {"$ref": "#/components/responses/Made"}}
   }
  },
  "/notes/{id}": {
   "get": {"operationId": "get", "parameters": [{"name": "id", "in": "path", "required": true, "style": "label", "explode": true, "schema": {"type": "string"}}],
    "responses": {"200": {"description": "one", "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Note"}}}}}},
   "put": {"operationId": "put", "parameters": [{"$ref": "#/components/parameters/Id"}], "requestBody": {"$ref": "#/components/requestBodies/Note"},
    "responses": {"200": {"description": "put"}}}
  }
 },
 "components": {
  "parameters": {"Trace": {"name": "X-Trace", "in": "header", "schema": {"type": "string"}}, "Id": {"name": "id", "in": "path", "required": true, "schema": {"type": "string", "pattern": "^[a-z]+$"}}},
  "headers": {"Rate": {"schema": {"type": "number"}, "deprecated": true}},
  "examples": {"Off": {"description": "off", "value": false}, "Far": {"externalValue": "https://example.com/far.json"}},
  "responses": {"Made": {"description": "made", "headers": {"Location": {"schema": {"type": "string"}}}}},
  "requestBodies": {"Note": {"required": true, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Note"}, "example": {"title": "x"}}}}},
  "schemas": {"Note": {"type": "object", "required": ["title"], "minProperties": 1, "maxProperties": 9, "example": {"title": "x"}, "properties": {
   "id": {"type": "string", "readOnly": true}, "secret": {"type": "string", "writeOnly": true},
   "title": {"type": "string", "minLength": 1, "maxLength": 40, "pattern": "^[^!]+$", "default": "none"},
   "stars": {"type": "integer", "minimum": 0, "maximum": 5, "exclusiveMaximum": true, "multipleOf": 1},
   "tags": {"type": "array", "items": {"type": "string"}, "minItems": 0, "maxItems": 3, "uniqueItems": true},
   "kind": {"not": {"type": "integer"}}}}}
 }
}`

// A document that is valid is published with all that it says of its parameters, bodies, responses and
// schemas.
func TestPublishedIsComplete(t *testing.T) {
	valid(t, []byte(complete))
	api := derive(t, Config{}, complete)
	valid(t, api.Document)
	readable(t, api.Document)
	var source, published map[string]any
	if err := json.Unmarshal([]byte(complete), &source); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(api.Document, &published); err != nil {
		t.Fatal(err)
	}
	var without func(v any)
	without = func(v any) { // the marks of Kubernetes
		switch v := v.(type) {
		case map[string]any:
			for _, name := range []string{"x-kubernetes-action", "x-kubernetes-group-version-kind", "x-kubernetes-preserve-unknown-fields"} {
				delete(v, name)
			}
			for _, inner := range v {
				without(inner)
			}
		case []any:
			for _, inner := range v {
				without(inner)
			}
		}
	}
	without(published)
	paths := published["paths"].(map[string]any)
	for path, want := range source["paths"].(map[string]any) {
		if got := paths["/apis/shop.example.com/v1"+path]; !reflect.DeepEqual(got, want) {
			t.Errorf("%s is published as %v, want %v", path, got, want)
		}
	}
	for name, want := range source["components"].(map[string]any) {
		if got := published["components"].(map[string]any)[name]; !reflect.DeepEqual(got, want) {
			t.Errorf("%s are published as %v, want %v", name, got, want)
		}
	}
}

// What is published of a document with mistakes is valid: the mistakes are left out.
func TestPublishedIsValid(t *testing.T) {
	const mistakes = `{
 "openapi": "3.1.0", "info": {"title": "Notes", "version": "1"},
 "paths": {
  "/notes": {"get": {"parameters": [
    null, {"name": "none"}, {"name": "a", "in": "body"}, {"name": "gone", "in": "path", "schema": {}}, {"$ref": "#/components/parameters/Nothing"}, {"$ref": "#/components/parameters/Round"},
    {"name": "plain", "in": "query"}, {"name": "plain", "in": "query", "schema": {"type": "string"}},
    {"name": "both", "in": "query", "schema": {"type": "string"}, "content": {"text/plain": {}}, "style": "matrix", "example": "1", "examples": {"one": {"value": "1", "externalValue": "x"}, "two": null}},
    {"name": "two", "in": "query", "content": {"text/plain": {}, "text/html": {}}},
    {"name": "styled", "in": "query", "content": {"text/plain": {"schema": {"type": "string"}}}, "style": "form", "explode": true, "example": "x"},
    {"name": "mistyped", "in": "query", "explode": "yes", "schema": {"type": "string", "minLength": -1, "maxLength": "x", "minimum": "", "exclusiveMinimum": 3, "multipleOf": 0}},
    {"name": "X-A", "in": "header", "allowReserved": true, "allowEmptyValue": true, "style": "form", "schema": {"type": "string"}}],
   "responses": {"200": {"description": "ok", "headers": {"X": null, "Y": {}, "Z": {"$ref": "#/components/headers/Nothing"}}}}}},
  "/notes/{id}": {
   "parameters": [{"name": "id", "in": "path", "schema": {"type": "string"}}],
   "get": {"responses": {}}},
  "/notes/{id}/parts/{part}": {"get": {"responses": {}}}
 },
 "components": {"parameters": {"Round": {"$ref": "#/components/parameters/Round"}, "Bad": {"name": "x"}}, "headers": {"none": null}}
}`
	petShop, err := os.ReadFile("testdata/petshop.json")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"mistakes": mistakes, "a document of version 3.1": shop, "the pet shop of the end-to-end tests": string(petShop),
		"nothing is declared": `{"openapi":"3.0.0","paths":{"/pets":{"get":{}},"/pets/{id}":{"get":{},"put":{}},"/a/{id}/1":{"get":{}}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			api := derive(t, Config{}, text)
			valid(t, api.Document)
			readable(t, api.Document)
		})
	}
}
