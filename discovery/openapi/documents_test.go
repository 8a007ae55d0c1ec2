package openapi

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/resource"
	"portico/resource/rest"
)

// plain is a codec without strategic merge patches.
type plain struct{ rest.Codec }

func (plain) StrategicMerge(schema.GroupVersionKind) runtime.Object { return nil }

func kinds(t *testing.T) []*rest.Kind {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, authenticationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	core := func(kind string) rest.Codec { return rest.Typed(scheme, corev1.SchemeGroupVersion.WithKind(kind)) }
	info := func(res, kind string, namespaced bool) resource.Info {
		return resource.Info{Versions: []string{"v1"}, Resource: res, Kind: kind, Namespaced: namespaced}
	}
	return []*rest.Kind{
		{Info: info("configmaps", "ConfigMap", true), Codec: core("ConfigMap")},
		{Info: info("namespaces", "Namespace", false), Codec: core("Namespace"), Verbs: []string{"create", "delete", "get", "list", "patch", "update", "watch"},
			Subresources: []rest.Subresource{{Name: "status", Strategy: &rest.Strategy{}}}},
		{Info: resource.Info{Group: "example.com", Versions: []string{"v1"}, Resource: "widgets", Kind: "Widget"}, Codec: plain{core("ConfigMap")}},
	}
}

func get(d *Documents, url string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, url, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	d.Handler().ServeHTTP(w, r)
	return w
}

// written is a document as a client reads it.
type written struct {
	Paths map[string]map[string]json.RawMessage `json:"paths"`
	Parts struct {
		Schemas map[string]*schemaType `json:"schemas"`
	} `json:"components"`
}

func read(t *testing.T, d *Documents, key string) written {
	t.Helper()
	w := get(d, "/openapi/v3/"+key)
	var out written
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || w.Code != 200 {
		t.Fatalf("%s: %d %v", key, w.Code, err)
	}
	return out
}

func (w written) operation(t *testing.T, path, method string) operation {
	t.Helper()
	raw, ok := w.Paths[path][method]
	if !ok {
		t.Fatalf("there is no %s %s, only %v", method, path, slices.Sorted(maps.Keys(w.Paths)))
	}
	var op operation
	if err := json.Unmarshal(raw, &op); err != nil {
		t.Fatal(err)
	}
	return op
}

const oneConfigMap = "/api/v1/namespaces/{namespace}/configmaps/{name}"

func TestPatchContentTypes(t *testing.T) {
	d := FromKinds(kinds(t))
	for path, c := range map[string]struct {
		key  string
		want []string
	}{
		oneConfigMap:                          {"api/v1", []string{"application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json"}},
		"/api/v1/namespaces/{name}/status":    {"api/v1", []string{"application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json"}},
		"/apis/example.com/v1/widgets/{name}": {"apis/example.com/v1", []string{"application/json-patch+json", "application/merge-patch+json"}},
	} {
		op := read(t, d, c.key).operation(t, path, "patch")
		if got := slices.Sorted(maps.Keys(op.RequestBody.Content)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", path, got, c.want)
		}
	}
}

func TestWriteParameters(t *testing.T) {
	doc := read(t, FromKinds(kinds(t)), "api/v1")
	for _, c := range []struct{ path, method string }{
		{"/api/v1/namespaces/{namespace}/configmaps", "post"}, {oneConfigMap, "put"}, {oneConfigMap, "patch"},
	} {
		op := doc.operation(t, c.path, c.method)
		for _, want := range []string{"dryRun", "fieldManager", "fieldValidation"} {
			if !slices.ContainsFunc(op.Parameters, func(p parameter) bool { return p.Name == want && p.In == "query" }) {
				t.Errorf("%s %s has no %s", c.method, c.path, want)
			}
		}
		if op.GVK == nil || *op.GVK != (gvk{Version: "v1", Kind: "ConfigMap"}) {
			t.Errorf("%s %s is about %+v", c.method, c.path, op.GVK)
		}
	}
	if _, ok := doc.Paths["/api/v1/namespaces"]["delete"]; ok {
		t.Error("an operation that is not served is described: deletecollection of namespaces")
	}
}

// Clients that generate code need each id once; each {parameter} of a path must
// be declared, and each $ref lead somewhere.
func TestDocumentsAreConsistent(t *testing.T) {
	d := FromKinds(kinds(t))
	for _, key := range d.Keys() {
		doc := read(t, d, key)
		ids := map[string]string{}
		for path, item := range doc.Paths {
			var shared []parameter
			if err := json.Unmarshal(item["parameters"], &shared); err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(path, -1) {
				if !slices.ContainsFunc(shared, func(p parameter) bool { return p.Name == m[1] && p.In == "path" && p.Required }) {
					t.Errorf("%s does not declare %s", path, m[1])
				}
			}
			for method := range item {
				if method == "parameters" {
					continue
				}
				id := doc.operation(t, path, method).OperationID
				if other := ids[id]; other != "" {
					t.Errorf("%s %s and %s are both %s", method, path, other, id)
				}
				ids[id] = method + " " + path
			}
		}
		body := get(d, "/openapi/v3/"+key).Body.String()
		for _, m := range regexp.MustCompile(`"\$ref":"#/components/schemas/([^"]+)"`).FindAllStringSubmatch(body, -1) {
			if doc.Parts.Schemas[m[1]] == nil {
				t.Errorf("%s: $ref to absent %s", key, m[1])
			}
		}
	}
}

// APIService, which has no SwaggerDoc, has descriptions.
func TestSchemaOfAPIService(t *testing.T) {
	all := &schemas{byName: map[string]*schemaType{}}
	all.add(reflect.TypeFor[apireg.APIService]())
	for name, s := range all.byName {
		if !strings.HasPrefix(name, aggregatorModels) {
			continue
		}
		if s.Description == "" {
			t.Errorf("%s has no description", name)
		}
		for field, p := range s.Properties {
			if p.Description == "" && len(p.AllOf) == 0 {
				t.Errorf("%s.%s has no description", name, field)
			}
		}
	}
	spec := all.byName[aggregatorModels+"v1.APIServiceSpec"]
	if spec == nil || !strings.Contains(spec.Properties["groupPriorityMinimum"].Description, "higher priority") {
		t.Errorf("%+v", spec)
	}
}

func TestSchemaOfConfigMap(t *testing.T) {
	schemas := read(t, FromKinds(kinds(t)), "api/v1").Parts.Schemas
	s := schemas["io.k8s.api.core.v1.ConfigMap"]
	if s == nil {
		t.Fatalf("no schema among %v", slices.Sorted(maps.Keys(schemas)))
	}
	if s.Description != (corev1.ConfigMap{}).SwaggerDoc()[""] || !slices.Equal(s.GVKs, []gvk{{Version: "v1", Kind: "ConfigMap"}}) {
		t.Errorf("description %q, kinds %v", s.Description, s.GVKs)
	}
	for name, want := range map[string]string{"apiVersion": "string", "kind": "string", "data": "object", "immutable": "boolean"} {
		if p := s.Properties[name]; p == nil || p.Type != want {
			t.Errorf("%s is %+v", name, p)
		}
	}
	if p := s.Properties["binaryData"]; p.AdditionalProperties.Format != "byte" {
		t.Errorf("binaryData is %+v", p.AdditionalProperties)
	}
	if p := s.Properties["data"]; p.Description == "" {
		t.Error("data is not described")
	}
	if p := s.Properties["metadata"]; len(p.AllOf) != 1 || schemas[strings.TrimPrefix(p.AllOf[0].Ref, "#/components/schemas/")] == nil {
		t.Errorf("metadata is %+v", p)
	}
	if list := schemas["io.k8s.api.core.v1.ConfigMapList"]; list == nil || list.GVKs[0].Kind != "ConfigMapList" {
		t.Errorf("list is %+v", list)
	}
}

func TestHash(t *testing.T) {
	url := FromKinds(kinds(t)).URL("api/v1")
	if again := FromKinds(kinds(t)).URL("api/v1"); again != url {
		t.Errorf("the same kinds have two hashes: %s %s", url, again)
	}
	changed := kinds(t)
	changed[0].Verbs = []string{"get"}
	if other := FromKinds(changed).URL("api/v1"); other == url {
		t.Error("other verbs have the same hash")
	}
	d := FromKinds(kinds(t))
	w := get(d, url)
	if w.Code != 200 || w.Header().Get("Cache-Control") != "public, immutable" || w.Header().Get("Expires") == "" || w.Header().Get("Vary") != "Accept" {
		t.Errorf("right hash: %d %v", w.Code, w.Header())
	}
	if w := get(d, "/openapi/v3/api/v1?hash=OLD"); w.Code != http.StatusMovedPermanently || w.Header().Get("Location") != url || w.Header().Get("Cache-Control") != "" {
		t.Errorf("wrong hash: %d %v", w.Code, w.Header())
	}
	if w := get(d, "/openapi/v3/api/v1"); w.Code != 200 || strings.Contains(w.Header().Get("Cache-Control"), "immutable") {
		t.Errorf("no hash: %d %v", w.Code, w.Header())
	}
	if w := get(d, url, "If-None-Match", w.Header().Get("ETag")); w.Code != http.StatusNotModified || w.Body.Len() != 0 {
		t.Errorf("ETag: %d, %d bytes", w.Code, w.Body.Len())
	}
	if w := get(d, "/openapi/v3/apis/none/v1"); w.Code != 404 {
		t.Errorf("absent: %d", w.Code)
	}
}

func TestIndex(t *testing.T) {
	d := FromKinds(kinds(t))
	w := get(d, "/openapi/v3")
	var index struct {
		Paths map[string]struct {
			URL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &index); err != nil {
		t.Fatal(err)
	}
	if len(index.Paths) != 2 {
		t.Fatalf("index %v", index.Paths)
	}
	for key, entry := range index.Paths {
		if w := get(d, entry.URL); w.Code != 200 || entry.URL != d.URL(key) {
			t.Errorf("%s: %d", entry.URL, w.Code)
		}
	}
}

func TestProtobuf(t *testing.T) {
	d := FromKinds(kinds(t))
	// Clients send the second form, older and malformed.
	for _, accept := range []string{mediaOpenAPIProtobuf, "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"} {
		w := get(d, "/openapi/v3/api/v1", "Accept", accept)
		if w.Code != 200 || w.Header().Get("Content-Type") != mediaOpenAPIProtobuf {
			t.Fatalf("%s: %d %v", accept, w.Code, w.Header())
		}
		if text := fromProtobuf(t, w.Body.Bytes()); !strings.Contains(text, oneConfigMap) || !strings.Contains(text, "application/merge-patch+json") {
			t.Error("patching a ConfigMap is not in the protobuf form")
		}
	}
	if w := get(d, "/openapi/v3/api/v1", "Accept", "text/html"); w.Code != http.StatusNotAcceptable {
		t.Errorf("text/html: %d", w.Code)
	}
}

// fromProtobuf parses a document's protobuf form and returns it as text.
func fromProtobuf(t *testing.T, data []byte) string {
	t.Helper()
	kind, err := protoregistry.GlobalTypes.FindMessageByName("openapi.v3.Document")
	if err != nil {
		t.Fatal(err)
	}
	doc := kind.New().Interface()
	if err := proto.Unmarshal(data, doc); err != nil {
		t.Fatal(err)
	}
	text, err := protojson.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
