package rest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"
)

// shop is a document as frameworks make them, of version 3.1.
const shop = `{
 "openapi": "3.1.0", "info": {"title": "Shop", "version": "1"},
 "servers": [{"url": "https://shop.example.com/api/v3/"}],
 "paths": {
  "/pets": {
   "get": {"responses": {"200": {"description": "all", "content": {"application/json": {"schema": {"type": "array", "items": {"$ref": "#/components/schemas/api.Pet"}}}}}}},
   "post": {"requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/PetInput"}}}}, "responses": {"201": {"description": "made"}}},
   "delete": {"responses": {}}
  },
  "/pets/{id}": {
   "parameters": [{"name": "id", "in": "path", "required": true, "schema": {"type": ["integer", "null"]}}],
   "get": {"operationId": "getPet", "responses": {"200": {"$ref": "#/components/responses/Pet"}}},
   "put": {"responses": {"200": {"description": "put"}}},
   "patch": {"responses": {"200": {"description": "patched"}}},
   "delete": {"responses": {"204": {"description": "gone"}}}
  },
  "/pets/{id}/toys": {"get": {"responses": {}}, "post": {"responses": {}}},
  "/pets/{id}/toys/{toy}": {"delete": {"responses": {}}},
  "/pets/{id}/{anything}": {"get": {"responses": {}}},
  "/pets/findByStatus": {"get": {"responses": {}}},
  "/boxes/{id}": {"get": {"responses": {"200": {"description": "a box", "content": {"application/json": {"schema": {"type": "object", "properties": {"size": {"type": "integer"}}}}}}}}},
  "/archived-pets/{id}": {"get": {"responses": {"200": {"$ref": "#/components/responses/Pet"}}}},
  "/Orders": {"get": {"responses": {}}},
  "/pet_types": {"get": {"responses": {}}},
  "/{tenant}/things": {"get": {"responses": {}}},
  "/watch/pets": {"get": {"responses": {}}},
  "/": {"get": {"responses": {}}},
  "/traced": {"trace": {"responses": {}}},
  "/empty": null,
  "/a//b": {"get": {"responses": {}}},
  "/x/{id}.json": {"get": {"responses": {}}}
 },
 "components": {
  "responses": {"Pet": {"description": "a pet", "content": {"application/json; charset=utf-8": {"schema": {"$ref": "#/components/schemas/api.Pet"}}}}},
  "schemas": {
   "api.Pet": {"type": "object", "required": ["name"], "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "Secret"}], "properties": {
     "name": {"type": "string", "description": "what it is called"},
     "age": {"type": ["integer", "null"], "exclusiveMinimum": 0},
     "mother": {"$ref": "#/components/schemas/api.Pet"},
     "lost": {"$ref": "https://example.com/other.json#/Lost"},
     "any": true, "nothing": null, "odd": {"type": "file"}, "list": {"type": "array"}}},
   "PetInput": {"type": "object"}, "not a name": {"type": "object"}, "none": null
  }
 }
}`

func derive(t *testing.T, cfg Config, text string) *API {
	t.Helper()
	cfg.Group, cfg.Version = "shop.example.com", "v1"
	api, err := Derive(cfg, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return api
}

// listing returns a line for each resource in discovery.
func listing(api *API) (out []string) {
	for _, r := range api.Resources.Legacy {
		out = append(out, fmt.Sprintf("%s %s %q %s", r.Name, r.Kind, r.SingularName, strings.Join(r.Verbs, ",")))
	}
	return out
}

// Paths become resources with the verbs of their methods; the others are left out with a reason.
func TestDerive(t *testing.T) {
	api := derive(t, Config{}, shop)
	want := []string{
		`archived-pets ArchivedPet "archivedpet" get`,
		`boxes Box "box" get`,
		`pets Pet "pet" create,delete,deletecollection,get,list,patch,update`,
		`pets/toys Pet "" create,delete,get`,
	}
	if got := listing(api); !slices.Equal(got, want) {
		t.Errorf("resources:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if api.PathPrefix != "/api/v3" {
		t.Errorf("prefix %q", api.PathPrefix)
	}
	left := map[string]string{}
	for _, l := range api.LeftOut {
		left[l.Path] = l.Reason
	}
	for path, reason := range map[string]string{
		"/": "names no resource", "/pets/findByStatus": "name of an object", "/pets/{id}/{anything}": "subresource is a parameter",
		"/Orders": "lower-case", "/pet_types": "lower-case", "/{tenant}/things": "resource is a parameter", "/watch/pets": `"watch" is reserved`,
		"/traced": "no method", "/empty": "no method", "/a//b": "empty segment", "/x/{id}.json": "only partly a parameter",
	} {
		if !strings.Contains(left[path], reason) {
			t.Errorf("%s is left out because %q, want %q", path, left[path], reason)
		}
		delete(left, path)
	}
	if len(left) > 0 || api.Omitted > 0 {
		t.Errorf("also left out: %v", left)
	}
	for _, r := range api.Resources.Aggregated {
		if r.Scope != apidiscovery.ScopeCluster || slices.Contains(r.Verbs, "watch") {
			t.Errorf("%s: %s %v", r.Resource, r.Scope, r.Verbs)
		}
	}
}

// The published document has the paths of clients, the kinds of discovery and what readers of OpenAPI 3.0
// support.
func TestPublished(t *testing.T) {
	api := derive(t, Config{}, shop)
	var doc document
	if err := json.Unmarshal(api.Document, &doc); err != nil {
		t.Fatal(err)
	}
	const root = "/apis/shop.example.com/v1"
	want := []string{root + "/archived-pets/{id}", root + "/boxes/{id}", root + "/pets", root + "/pets/{id}", root + "/pets/{id}/toys", root + "/pets/{id}/toys/{toy}"}
	if got := slices.Sorted(maps.Keys(doc.Paths)); !slices.Equal(got, want) {
		t.Errorf("paths %q", got)
	}
	list := doc.Paths[root+"/pets"]
	if list.Get.Action != "list" || list.Delete.Action != "deletecollection" || list.Post.Action != "post" || *list.Get.GVK != (gvk{"shop.example.com", "v1", "Pet"}) {
		t.Errorf("list: %+v %+v", list.Get, list.Get.GVK)
	}
	owners := map[gvk]string{}
	for name, s := range doc.Components.Schemas {
		for _, id := range s.GVKs {
			owners[id] = name
		}
	}
	for kind, name := range map[string]string{"Pet": "api.Pet", "Box": "Box", "ArchivedPet": "ArchivedPet"} {
		if id := (gvk{"shop.example.com", "v1", kind}); owners[id] != name {
			t.Errorf("the schema of %s is %q", kind, owners[id])
		}
	}
	if len(owners) != 3 {
		t.Errorf("kinds %v", owners)
	}
	pet := doc.Components.Schemas["api.Pet"]
	if age := pet.Properties["age"]; age.Type != "integer" || !age.Nullable {
		t.Errorf("age %+v", age)
	}
	if pet.Properties["mother"].Ref != schemaPrefix+"api.Pet" || pet.Properties["lost"].Ref != "" || pet.Properties["odd"].Type != nil || pet.Properties["list"].Items == nil {
		t.Errorf("properties %+v", pet.Properties)
	}
	if doc.Components.Schemas["not a name"] != nil {
		t.Error("a component with an invalid name is published")
	}
	readable(t, api.Document)
}

// References are JSON pointers: names with "/" and "~" are found by their escaped form, and published under names that need
// none.
func TestEscapedReferences(t *testing.T) {
	api := derive(t, Config{}, `{"openapi": "3.0.0", "info": {"title": "t", "version": "1"}, "paths": {"/pets/{id}": {
	  "parameters": [{"$ref": "#/components/parameters/a~1id"}],
	  "get": {"responses": {"200": {"$ref": "#/components/responses/one%2Fpet"}}}}},
	 "components": {
	  "parameters": {"a/id": {"name": "id", "in": "path", "required": true, "schema": {"type": "string"}}},
	  "responses": {"one/pet": {"description": "a pet", "content": {"application/json": {"schema": {"$ref": "#/components/schemas/example.com~1api.Pet"}}}}},
	  "schemas": {"example.com/api.Pet": {"type": "object", "properties": {"tag": {"$ref": "#/components/schemas/a~0tag"}}}, "a~tag": {"type": "string"}}}}`)
	if got := listing(api); !slices.Equal(got, []string{`pets Pet "pet" get`}) {
		t.Errorf("resources %q", got)
	}
	var doc document
	if err := json.Unmarshal(api.Document, &doc); err != nil {
		t.Fatal(err)
	}
	pet := doc.Components.Schemas["example.com_2fapi.Pet"]
	if pet == nil || len(pet.GVKs) != 1 || pet.Properties["tag"].Ref != schemaPrefix+"a_7etag" || doc.Components.Schemas["a_7etag"] == nil {
		t.Errorf("schemas %+v", doc.Components.Schemas)
	}
	item := doc.Paths["/apis/shop.example.com/v1/pets/{id}"]
	if len(item.Parameters) != 1 || item.Parameters[0].Ref != "#/components/parameters/a_2fid" || item.Get.Responses["200"].Ref != "#/components/responses/one_2fpet" {
		t.Errorf("path %+v", item)
	}
	readable(t, api.Document)
}

// readable fails unless the libraries of kubectl can read a document.
func readable(t *testing.T, data []byte) {
	t.Helper()
	if err := json.Unmarshal(data, &spec3.OpenAPI{}); err != nil {
		t.Errorf("spec3: %v", err)
	}
	if _, err := handler3.ToV3ProtoBinary(data); err != nil {
		t.Errorf("protobuf: %v", err)
	}
}

// The path prefix is configured, or that of the first server in the document.
func TestPathPrefix(t *testing.T) {
	doc := func(server string, paths ...string) string {
		items := map[string]any{}
		for _, p := range paths {
			items[p] = map[string]any{"get": map[string]any{}}
		}
		data, err := json.Marshal(map[string]any{"openapi": "3.0.3", "servers": []any{map[string]any{"url": server}}, "paths": items})
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	for _, tc := range []struct {
		configured, server, path string
		prefix                   string // "!" is none at all
	}{
		{"", "", "/pets", ""},
		{"", "/", "/pets", ""},
		{"", "http://127.0.0.1:3000", "/pets", ""},
		{"", "/api/v1/", "/pets", "/api/v1"},
		{"", "https://{host}/{base}", "/pets", ""},
		{"", "/a b", "/pets", ""},
		{"/", "/outer", "/pets", ""},
		{"/inner", "/outer", "/pets", "/inner"},
		{"/api/v1", "", "/api/v1/pets", "/api/v1"},
		{"/api/v1/", "/api", "/v1/pets", "/api/v1"},
		{"/api/v1", "", "/pets", "!"},
		{"/api/v1", "", "/api/v1beta/pets", "!"},
	} {
		api, err := Derive(Config{Group: "g", Version: "v", PathPrefix: tc.configured}, []byte(doc(tc.server, tc.path)))
		switch {
		case tc.prefix == "!":
			if !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), "not below "+tc.configured) {
				t.Errorf("%+v: %v", tc, err)
			}
		case err != nil:
			t.Errorf("%+v: %v", tc, err)
		case api.PathPrefix != tc.prefix || api.Resources.Legacy[0].Name != "pets":
			t.Errorf("%+v: prefix %q, resource %q", tc, api.PathPrefix, api.Resources.Legacy[0].Name)
		}
	}
	for _, bad := range []string{"api", "/a/../b", "//a", "/a b", "/%2e", "/a?b", strings.Repeat("/a", 129)} {
		if CheckPathPrefix(bad) == nil {
			t.Errorf("%q is accepted", bad)
		}
		if _, err := Derive(Config{PathPrefix: bad}, []byte(doc("", "/pets"))); err == nil {
			t.Errorf("%q is accepted by Derive", bad)
		}
	}
}

// Kinds have singular names of letters and digits.
func TestNames(t *testing.T) {
	for in, want := range map[string]string{
		"pets": "pet", "categories": "category", "boxes": "box", "dishes": "dish", "branches": "branch", "classes": "class", "class": "class", "status": "status", "analysis": "analysis", "s": "s", "people": "people",
	} {
		if got := singular(in); got != want {
			t.Errorf("singular of %q is %q, want %q", in, got, want)
		}
	}
	for in, want := range map[string]string{
		"Pet": "Pet", "api.v1.pet-input": "PetInput", "pet_type": "PetType", "42nd": "Nd", "": "", "日本": "", "a/b": "AB", strings.Repeat("x", 99): "X" + strings.Repeat("x", maxKind-1),
	} {
		if got := kindName(in); got != want {
			t.Errorf("kind of %q is %q, want %q", in, got, want)
		}
	}
}

// Each resource has its own kind, whatever its name is.
func TestKindsDiffer(t *testing.T) {
	api := derive(t, Config{}, `{"openapi":"3.0.0","paths":{"/pets":{"get":{}},"/pet":{"get":{}},"/1":{"get":{}},"/2":{"get":{}},"/pet2":{"get":{}},"/a/{id}/1":{"get":{}}}}`)
	want := []string{`1 Resource "resource" list`, `2 Resource2 "resource2" list`, `a/1 Resource "" get`, `pet Pet "pet" list`, `pet2 Pet2 "pet2" list`, `pets Pets "pets" list`}
	if got := listing(api); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	readable(t, api.Document)
}
