package gateway

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/json"

	"portico/apiservice/backend"
	"portico/discovery/openapi"
	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/rest"
	"portico/resource/rest/handlers"
)

// backendsAPI serves the kind Backend as the gateway does.
func backendsAPI(t *testing.T) func(method, path, mediaType, body string, header ...string) (code int, answer string) {
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
	return func(method, path, mediaType, body string, header ...string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, server.URL+"/apis/gateway.portico.dev/v1alpha1/backends"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", mediaType)
		for i := 0; i+1 < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
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

const applyPatch, jsonBody = "application/apply-patch+yaml", "application/json"

// Two managers apply an endpoint each: both are there, each is its manager's.
func TestBackendEndpointsHaveOwners(t *testing.T) {
	do := backendsAPI(t)
	for i, manager := range []string{"one", "two"} {
		code, answer := do("PATCH", "/b?fieldManager="+manager, applyPatch, fmt.Sprintf(
			`{"apiVersion":"gateway.portico.dev/v1alpha1","kind":"Backend","metadata":{"name":"b"},"spec":{"endpoints":[{"url":"https://h%d","weight":%d}]}}`, i, i+1))
		if code != 200+1-i {
			t.Fatalf("%s: %d %s", manager, code, answer)
		}
	}
	code, answer := do("GET", "/b", "", "")
	var b backend.Backend
	if err := json.Unmarshal([]byte(answer), &b); err != nil || code != 200 {
		t.Fatalf("%d %s: %v", code, answer, err)
	}
	if len(b.Spec.Endpoints) != 2 || b.Generation != 2 {
		t.Errorf("endpoints %v, generation %d", b.Spec.Endpoints, b.Generation)
	}
	for i, entry := range b.ManagedFields {
		if !strings.Contains(entry.FieldsV1.GetRawString(), fmt.Sprintf(`"k:{\"url\":\"https://h%d\"}"`, i)) {
			t.Errorf("%s owns %s", entry.Manager, entry.FieldsV1.GetRawString())
		}
	}
	code, answer = do("PATCH", "/b?fieldManager=two", applyPatch,
		`{"apiVersion":"gateway.portico.dev/v1alpha1","kind":"Backend","metadata":{"name":"b"},"spec":{"endpoints":[{"url":"https://h0","weight":9}]}}`)
	if code != http.StatusConflict || !strings.Contains(answer, `.spec.endpoints[url=\"https://h0\"].weight`) {
		t.Errorf("another's weight: %d %s", code, answer)
	}
	code, answer = do("PATCH", "/b", "application/strategic-merge-patch+json", `{"spec":{"endpoints":[{"url":"https://h0","weight":7}]}}`)
	if code != 200 || !strings.Contains(answer, `{"url":"https://h0","weight":7}`) || !strings.Contains(answer, "https://h1") {
		t.Errorf("a strategic merge: %d %s", code, answer)
	}
	code, answer = do("PATCH", "/b/status", "application/merge-patch+json", `{"spec":{"balance":"RoundRobin"},"status":{"endpoints":[{"url":"https://h0","state":"Healthy"}]}}`)
	if code != 200 || strings.Contains(answer, "RoundRobin") || !strings.Contains(answer, `"state":"Healthy"`) || !strings.Contains(answer, `"generation":3`) {
		t.Errorf("the status: %d %s", code, answer)
	}
}

// The kind has no protobuf form, and says so as custom resources do.
func TestBackendHasNoProtobuf(t *testing.T) {
	do := backendsAPI(t)
	const proto = "application/vnd.kubernetes.protobuf"
	if code, answer := do("POST", "", jsonBody, `{"apiVersion":"gateway.portico.dev/v1alpha1","kind":"Backend","metadata":{"name":"b"},"spec":{"endpoints":[{"url":"https://h"}]}}`); code != 201 {
		t.Fatalf("%d %s", code, answer)
	}
	if code, answer := do("GET", "/b", "", "", "Accept", proto); code != http.StatusNotAcceptable {
		t.Errorf("read as protobuf: %d %s", code, answer)
	}
	if code, answer := do("GET", "", "", "", "Accept", proto+", application/json"); code != 200 || !strings.HasPrefix(answer, "{") {
		t.Errorf("either: %d %s", code, answer)
	}
	if code, answer := do("POST", "", proto, "k8s\x00abc"); code != http.StatusUnsupportedMediaType {
		t.Errorf("written as protobuf: %d %s", code, answer)
	}
	if code, answer := do("POST", "?fieldValidation=Strict", jsonBody, `{"apiVersion":"gateway.portico.dev/v1alpha1","kind":"Backend","metadata":{"name":"c"},"spec":{"endpoints":[{"url":"https://h","wait":1}]}}`); code != 400 || !strings.Contains(answer, `unknown field \"spec.endpoints[0].wait\"`) {
		t.Errorf("an unknown field: %d %s", code, answer)
	}
	if code, answer := do("POST", "", jsonBody, `{"apiVersion":"gateway.portico.dev/v1alpha1","kind":"Backend","metadata":{"name":"c"},"spec":{}}`); code != 422 || !strings.Contains(answer, `"field":"spec.endpoints"`) {
		t.Errorf("an invalid one: %d %s", code, answer)
	}
}
