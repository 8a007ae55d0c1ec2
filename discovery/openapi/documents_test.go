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
	"sync"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/spec3"

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

// parse reads a document with the library that clients read it with.
func parse(t testing.TB, d *Documents, key string) *spec3.OpenAPI {
	t.Helper()
	w := get(d, "/openapi/v3/"+key)
	doc := &spec3.OpenAPI{}
	if err := json.Unmarshal(w.Body.Bytes(), doc); err != nil || w.Code != 200 {
		t.Fatalf("%s: %d %v", key, w.Code, err)
	}
	return doc
}

// operationsOf returns the operations of a path by method.
func operationsOf(item *spec3.Path) map[string]*spec3.Operation {
	all := map[string]*spec3.Operation{"DELETE": item.Delete, "GET": item.Get, "PATCH": item.Patch, "POST": item.Post, "PUT": item.Put}
	maps.DeleteFunc(all, func(_ string, op *spec3.Operation) bool { return op == nil })
	return all
}

const (
	configMaps   = "/api/v1/namespaces/{namespace}/configmaps"
	oneConfigMap = configMaps + "/{name}"
)

// PATCH has the accepted content types, and writes have the parameters that kubectl looks for, with the
// kind of the object. Operations that are not served are not described.
func TestWrites(t *testing.T) {
	d := FromKinds(Config{}, kinds(t))
	core := parse(t, d, "api/v1").Paths.Paths
	patches := []string{"application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json"}
	for path, c := range map[string]struct {
		item *spec3.Path
		want []string
	}{
		"an object":         {core[oneConfigMap], patches},
		"a subresource":     {core["/api/v1/namespaces/{name}/status"], patches},
		"without a Go type": {parse(t, d, "apis/example.com/v1").Paths.Paths["/apis/example.com/v1/widgets/{name}"], patches[:2]},
	} {
		if got := slices.Sorted(maps.Keys(c.item.Patch.RequestBody.Content)); !slices.Equal(got, c.want) {
			t.Errorf("%s: content types %v, want %v", path, got, c.want)
		}
	}
	for _, op := range []*spec3.Operation{core[configMaps].Post, core[oneConfigMap].Put, core[oneConfigMap].Patch} {
		for _, want := range []string{"dryRun", "fieldManager", "fieldValidation"} {
			if !slices.ContainsFunc(op.Parameters, func(p *spec3.Parameter) bool { return p.Name == want && p.In == "query" }) {
				t.Errorf("%s has no parameter %s", op.OperationId, want)
			}
		}
		if id := op.Extensions[extensionGVK]; !reflect.DeepEqual(id, map[string]any{"group": "", "kind": "ConfigMap", "version": "v1"}) {
			t.Errorf("%s has the kind %v", op.OperationId, id)
		}
	}
	if core["/api/v1/namespaces"].Delete != nil {
		t.Error("deletecollection of namespaces is described and not served")
	}
}

// Generators of code need unique ids, a declaration of each {parameter} of a path, and the target of
// each $ref.
func TestDocumentsAreConsistent(t *testing.T) {
	d := FromKinds(Config{}, kinds(t))
	for _, key := range d.Keys() {
		doc := parse(t, d, key)
		ids := map[string]string{}
		for path, item := range doc.Paths.Paths {
			for _, m := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(path, -1) {
				if !slices.ContainsFunc(item.Parameters, func(p *spec3.Parameter) bool { return p.Name == m[1] && p.In == "path" && p.Required }) {
					t.Errorf("%s does not declare %s", path, m[1])
				}
			}
			for method, op := range operationsOf(item) {
				if other := ids[op.OperationId]; other != "" {
					t.Errorf("%s %s and %s are both %s", method, path, other, op.OperationId)
				}
				ids[op.OperationId] = method + " " + path
			}
		}
		body := get(d, "/openapi/v3/"+key).Body.String()
		for _, m := range regexp.MustCompile(`"\$ref":"#/components/schemas/([^"]+)"`).FindAllStringSubmatch(body, -1) {
			if doc.Components.Schemas[m[1]] == nil {
				t.Errorf("%s: $ref to absent %s", key, m[1])
			}
		}
	}
}

// The URL of a document has the hash of its inputs. With it the document may be cached for ever; another
// hash is redirected.
func TestHash(t *testing.T) {
	url := FromKinds(Config{}, kinds(t)).URL("api/v1")
	if again := FromKinds(Config{}, kinds(t)).URL("api/v1"); again != url {
		t.Errorf("the same kinds have two hashes: %s %s", url, again)
	}
	changed := kinds(t)
	changed[0].Verbs = []string{"get"}
	if other := FromKinds(Config{}, changed).URL("api/v1"); other == url {
		t.Error("other verbs have the same hash")
	}
	d := FromKinds(Config{}, kinds(t))
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

// The index has the URL of each document.
func TestIndex(t *testing.T) {
	d := FromKinds(Config{}, kinds(t))
	var index struct {
		Paths map[string]struct {
			URL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(get(d, "/openapi/v3").Body.Bytes(), &index); err != nil || len(index.Paths) != 2 {
		t.Fatalf("index %v, %v", index.Paths, err)
	}
	for key, entry := range index.Paths {
		if w := get(d, entry.URL); w.Code != 200 || entry.URL != d.URL(key) {
			t.Errorf("%s: %d", entry.URL, w.Code)
		}
	}
}

// Documents have a protobuf form, by its media type and by the older one, which is malformed.
func TestProtobuf(t *testing.T) {
	d := FromKinds(Config{}, kinds(t))
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

// Documents are built at once from definitions that they share.
func TestDocumentsAreBuiltAtOnce(t *testing.T) {
	var all sync.WaitGroup
	for range 8 {
		d := FromKinds(Config{}, kinds(t))
		all.Go(func() {
			for _, key := range d.Keys() {
				if w := get(d, "/openapi/v3/"+key); w.Code != 200 {
					t.Errorf("%s: %d", key, w.Code)
				}
			}
		})
	}
	all.Wait()
}
