package openapi

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"
)

// v2 is a document with parameters and media types that operations inherit.
const v2 = `{
 "swagger": "2.0", "info": {"title": "t", "version": "1"}, "consumes": ["application/json"], "produces": ["application/json"],
 "parameters": {"ns": {"name": "namespace", "in": "path", "required": true, "type": "string"}, "body": {"name": "whole", "in": "body", "schema": {"$ref": "#/definitions/W"}}},
 "paths": {
  "/apis/g/v1/ws": {
   "parameters": [{"$ref": "#/parameters/ns"}, {"name": "pretty", "in": "query", "type": "string"}],
   "get": {"parameters": [{"name": "pretty", "in": "query", "type": "boolean"}], "responses": {"200": {"description": "", "schema": {"$ref": "#/definitions/W"}}}},
   "post": {"parameters": [{"$ref": "#/parameters/body"}], "x-kubernetes-action": "post"}
  },
  "/apis/g/v1beta1/ws": {"get": {"responses": {"200": {"description": "", "schema": {"$ref": "#/definitions/Unused"}}}}},
  "/apis/g/v1": {"get": {"responses": {}}}
 },
 "definitions": {
  "W": {"type": "object", "x-kubernetes-group-version-kind": [{"group": "g", "version": "v1", "kind": "W"}], "properties": {"spec": {"description": "what", "$ref": "#/definitions/S"}}},
  "S": {"type": "object"}, "Unused": {"type": "object"}
 }
}`

// The paths of a group/version are converted with all that they refer to.
func TestFromV2(t *testing.T) {
	keys, err := KeysOfV2([]byte(v2), []string{"apis/g/v1", "apis/g/v1beta1", "apis/g/v2", "apis/h/v1"})
	if err != nil || !slices.Equal(keys, []string{"apis/g/v1", "apis/g/v1beta1"}) {
		t.Errorf("keys %q, %v", keys, err)
	}
	data, err := FromV2([]byte(v2), "apis/g/v1")
	if err != nil {
		t.Fatal(err)
	}
	var doc spec3.OpenAPI
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	if err := Check(data); err != nil {
		t.Error(err)
	}
	if _, err := handler3.ToV3ProtoBinary(data); err != nil {
		t.Error(err)
	}
	ws := doc.Paths.Paths["/apis/g/v1/ws"]
	if len(doc.Paths.Paths) != 1 || ws == nil {
		t.Fatalf("paths %v", doc.Paths.Paths)
	}
	if p := ws.Get.Parameters; len(p) != 2 || p[0].Name != "pretty" || p[0].Schema.Type[0] != "boolean" || p[1].Name != "namespace" {
		t.Errorf("parameters %s", data)
	}
	if ws.Post.RequestBody == nil || ws.Post.RequestBody.Content["application/json"].Schema.Ref.String() != "#/components/schemas/W" {
		t.Errorf("body of %s", data)
	}
	if ws.Get.Responses.StatusCodeResponses[200].Content["application/json"] == nil {
		t.Errorf("answer of %s", data)
	}
	w := doc.Components.Schemas["W"]
	if w == nil || doc.Components.Schemas["S"] == nil || doc.Components.Schemas["Unused"] != nil || w.Extensions["x-kubernetes-group-version-kind"] == nil {
		t.Errorf("schemas of %s", data)
	}
	if ref := w.Properties["spec"].AllOf; len(ref) != 1 || ref[0].Ref.String() != "#/components/schemas/S" || w.Properties["spec"].Description != "what" {
		t.Errorf("a reference beside a description: %s", data)
	}
	if a, b := ConvertedHash("1", "apis/g/v1"), ConvertedHash("2", "apis/g/v1"); a == b || a == ConvertedHash("1", "apis/g/v2") {
		t.Error("hashes do not differ")
	}
}

// Any document is converted to a valid one or is an error.
func FuzzFromV2(f *testing.F) {
	f.Add([]byte(v2))
	f.Add([]byte(`{"swagger":"2.0","paths":{"/apis/g/v1/a":{"get":null,"parameters":[{"$ref":"#/parameters/x"}]}}}`))
	f.Add([]byte(`{"swagger":"2.0","paths":{"/apis/g/v1/a":{"get":{"responses":{"200":{"$ref":"#/responses/x"}}}}},"definitions":{"A":{"$ref":"%zz"}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		out, err := FromV2(data, "apis/g/v1")
		if err == nil {
			if err := Check(out); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		}
		_, _ = KeysOfV2(data, []string{"apis/g/v1"})
	})
}

// Other documents are errors.
func TestNotV2(t *testing.T) {
	for text, want := range map[string]string{
		"": "decode", "[]": "decode", "{}": "no OpenAPI v2", `{"swagger":"2.0"}`: "no paths", `{"openapi":"3.0.0","paths":{}}`: "no OpenAPI v2",
		`{"swagger":"2.0","paths":{"/apis/g/v1/a":{"get":{"parameters":[{"$ref":"#/parameters/gone"}]}}}}`: "does not exist",
	} {
		_, err := FromV2([]byte(text), "apis/g/v1")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
		if _, err := KeysOfV2([]byte(text), nil); want != "does not exist" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("keys of %s: %v", text, err)
		}
	}
}
