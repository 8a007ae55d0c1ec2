package openapi

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/kube-openapi/pkg/util/proto"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"portico/internal/testing/await"
	"portico/resource"
)

// client-go reads the document of the gateway's kinds and of custom resources, and finds the model of a
// kind and the fields of its metadata. The document follows a changed schema, and a group that goes.
func TestOpenAPIV2ForClients(t *testing.T) {
	t.Parallel()
	crd := startDescribing(t, "crd", "a.example.com")
	g := startIndexing(t, crd)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = g.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	g.check(t)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.ServeHTTP(w, r.WithContext(resource.WithAction(r.Context(), resource.ParseAction(r))))
	}))
	defer front.Close()
	client := discovery.NewDiscoveryClientForConfigOrDie(&rest.Config{Host: front.URL})
	doc, err := client.OpenAPISchema()
	if err != nil {
		t.Fatal(err)
	}
	models, err := proto.NewOpenAPIData(doc)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]string{} // models by kind, as kubectl finds them
	for _, name := range models.ListModels() {
		gvks, _ := models.LookupModel(name).GetExtensions()["x-kubernetes-group-version-kind"].([]any)
		for _, gvk := range gvks {
			id := gvk.(map[any]any)
			kinds[id["group"].(string)+"/"+id["version"].(string)+"/"+id["kind"].(string)] = name
		}
	}
	for _, id := range []string{"a.example.com/v1/Widget", "a.example.com/v1/WidgetList", "apiregistration.k8s.io/v1/APIService", "/v1/DeleteOptions"} {
		if kinds[id] == "" {
			t.Errorf("no model of %s among %v", id, kinds)
		}
	}
	for _, id := range []string{"a.example.com/v1/Widget", "apiregistration.k8s.io/v1/APIService"} {
		kind, ok := models.LookupModel(kinds[id]).(*proto.Kind)
		if !ok {
			t.Fatalf("%s is %T", id, models.LookupModel(kinds[id]))
		}
		metadata, ok := kind.Fields["metadata"].(proto.Reference)
		if !ok {
			t.Fatalf("metadata of %s is %T", id, kind.Fields["metadata"])
		}
		if _, ok := metadata.SubSchema().(*proto.Kind).Fields["labels"].(*proto.Map); !ok {
			t.Errorf("%s has no labels", id)
		}
	}
	crd.serves(t, "2", "a.example.com")
	g.check(t)
	// The old document is served until the new one is made.
	await.Until(t, "the changed schema is served", func() bool {
		if doc, err = client.OpenAPISchema(); err != nil {
			t.Fatal(err)
		}
		if models, err = proto.NewOpenAPIData(doc); err != nil {
			t.Fatal(err)
		}
		return models.LookupModel(kinds["a.example.com/v1/Widget"]).GetDescription() == "schema 2"
	})
	crd.serves(t, "2", "c.example.com")
	g.check(t)
	await.Until(t, "the group that is gone is not described", func() bool {
		if doc, err = client.OpenAPISchema(); err != nil {
			t.Fatal(err)
		}
		described := map[string]bool{}
		for _, p := range doc.GetPaths().GetPath() {
			described[p.Name] = true
		}
		return !described["/apis/a.example.com/"] && described["/apis/c.example.com/"] && described["/apis/apiregistration.k8s.io/v1/"]
	})
}

// The document has the paths of discovery and of the version, with the operations and definitions of
// kube-apiserver's document.
func TestPathsInOpenAPIV2(t *testing.T) {
	t.Parallel()
	g := startIndexing(t, startDescribing(t, "crd", "a.example.com"))
	issuing := New(Config{Own: g.cfg.Own, Index: g.cfg.Index, Table: g.cfg.Table, Verdict: g.cfg.Verdict, Issuer: true})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = issuing.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	g.check(t)
	w := httptest.NewRecorder()
	issuing.ServeHTTP(w, httptest.NewRequest("GET", "/openapi/v2", nil))
	var doc spec.Swagger
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d %v %s", w.Code, err, w.Body)
	}
	const meta = "io.k8s.apimachinery.pkg.apis.meta.v1."
	for path, want := range map[string][3]string{
		"/api/":                              {"getCoreAPIVersions", "core", meta + "APIVersions"},
		"/apis/":                             {"getAPIVersions", "apis", meta + "APIGroupList"},
		"/apis/apiregistration.k8s.io/":      {"getApiregistrationAPIGroup", "apiregistration", meta + "APIGroup"},
		"/apis/apiregistration.k8s.io/v1/":   {"getApiregistrationV1APIResources", "apiregistration_v1", meta + "APIResourceList"},
		"/apis/a.example.com/":               {"getAExampleComAPIGroup", "aExampleCom", meta + "APIGroup"},
		"/version/":                          {"getCodeVersion", "version", "io.k8s.apimachinery.pkg.version.Info"},
		"/.well-known/openid-configuration/": {"getServiceAccountIssuerOpenIDConfiguration", "WellKnown", ""},
		"/openid/v1/jwks/":                   {"getServiceAccountIssuerOpenIDKeyset", "openid", ""},
	} {
		op := doc.Paths.Paths[path].Get
		if op == nil {
			t.Errorf("%s is not described", path)
			continue
		}
		schema := op.Responses.StatusCodeResponses[200].Schema
		if op.ID != want[0] || len(op.Tags) != 1 || op.Tags[0] != want[1] || schema.Ref.String() != "" != (want[2] != "") || len(op.Produces) == 0 {
			t.Errorf("%s: %+v", path, op)
		}
		if want[2] == "" {
			continue
		}
		if _, ok := doc.Definitions[want[2]]; !ok || schema.Ref.String() != definitionPrefix+want[2] {
			t.Errorf("%s: %s, defined: %v", path, schema.Ref.String(), ok)
		}
	}
}
