package gateway

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"portico/apiservice/backend"
	"portico/discovery/openapi"
	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/rest"
	"portico/resource/rest/handlers"
)

// backendsAPI serves the kind Backend as the gateway does.
func backendsAPI(t *testing.T) func(method, path, media, body, accept string) (code int, answer string) {
	t.Helper()
	k, err := backend.Kind()
	if err != nil {
		t.Fatal(err)
	}
	k.Ownership = openapi.Ownership(k)
	api := handlers.New(handlers.Config{Resources: []*rest.Resource{{Kind: k, Store: memstore.New().Store(&k.Info)}}})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		act := resource.ParseAction(r)
		act.User = &resource.User{Name: "u"}
		api.ServeHTTP(w, r.WithContext(resource.WithAction(r.Context(), act)))
	}))
	t.Cleanup(server.Close)
	return func(method, path, media, body, accept string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, server.URL+"/apis/gateway.portico.dev/v1alpha1/backends"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"Content-Type": {media}, "Accept": {accept}}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		data, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(data)
	}
}

// The kind Backend has patches and a status like built-in kinds, and no protobuf form, which it
// says as custom resources do.
func TestBackendRequests(t *testing.T) {
	t.Parallel()
	do := backendsAPI(t)
	const (
		jsonBody, strategic, merge, proto = "application/json", "application/strategic-merge-patch+json", "application/merge-patch+json", "application/vnd.kubernetes.protobuf"

		head = `{"apiVersion":"gateway.portico.dev/v1alpha1","kind":"Backend","metadata":{"name":"b"},"spec":`
	)
	for _, c := range []struct {
		method, path, media, body, accept string
		code                              int
		want                              string // of the answer
	}{
		{"POST", "", jsonBody, head + `{"endpoints":[{"url":"https://h0","weight":1},{"url":"https://h1"}]}}`, "", 201, `"generation":1`},
		{"PATCH", "/b", strategic, `{"spec":{"endpoints":[{"url":"https://h1","weight":7}]}}`, "", 200, `{"url":"https://h0","weight":1},{"url":"https://h1","weight":7}`},
		{"PATCH", "/b/status", merge, `{"spec":{"balance":"RoundRobin"},"status":{"endpoints":[{"url":"https://h0","state":"Healthy"}]}}`, "", 200, `"state":"Healthy"`},
		{"GET", "/b", "", "", "", 200, `"generation":2`},
		{"PATCH", "/b?fieldManager=a", "application/apply-patch+yaml", head + `{"endpoints":[{"url":"https://h0","weight":9}]}}`, "", 409, `.spec.endpoints[url=\"https://h0\"].weight`},
		{"POST", "?fieldValidation=Strict", jsonBody, head + `{"endpoints":[{"url":"https://h","wait":1}]}}`, "", 400, `unknown field \"spec.endpoints[0].wait\"`},
		{"POST", "", jsonBody, head + `{}}`, "", 422, `"field":"spec.endpoints"`},
		{"GET", "/b", "", "", proto, 406, ""},
		{"GET", "", "", "", proto + ", application/json", 200, `{`},
		{"POST", "", proto, "k8s\x00abc", "", 415, ""},
	} {
		code, answer := do(c.method, c.path, c.media, c.body, c.accept)
		if code != c.code || !strings.Contains(answer, c.want) || strings.Contains(answer, "RoundRobin") {
			t.Errorf("%s %s %s: %d %s", c.method, c.path, c.body, code, answer)
		}
	}
}
