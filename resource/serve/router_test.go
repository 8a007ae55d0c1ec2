package serve

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
)

// say answers with a name and the resource of the Action.
func say(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		line := name
		if a := resource.ActionFrom(r.Context()); a != nil {
			line += fmt.Sprintf(" %s %s", a.Resource, a.Name)
		}
		_, _ = io.WriteString(w, strings.TrimSpace(line))
	})
}

// Requests reach the handler of their path, resources apart from discovery, and the index
// lists the paths.
func TestRouter(t *testing.T) {
	t.Parallel()
	router := NewRouter(Routes{
		Resources: say("resources"), Discovery: say("discovery"), OpenAPI: say("openapi"), Health: NewHealth(),
		Metrics: say("metrics"), Version: say("version"),
		Index: func() []string { return []string{"/apis", "/api", "/api"} },
	})
	const missing = "404 page not found\n"
	for _, c := range []struct {
		method, target string
		code           int
		body           string
	}{
		{"GET", "/api", 200, "discovery"}, {"GET", "/api/", 200, "discovery"}, {"GET", "/api/v1", 200, "discovery"},
		{"GET", "/apis", 200, "discovery"}, {"GET", "/apis/", 200, "discovery"}, {"GET", "/apis/apps/v1", 200, "discovery"},
		{"GET", "/apis/apps/v1/deployments", 200, "resources deployments"},
		{"PATCH", "/api/v1/namespaces/ns/pods/x", 200, "resources pods x"},
		{"GET", "/api/v1/namespaces/ns/pods/a%2Fb%2e%2e", 200, "resources pods a/b.."},
		{"GET", "/api/v1//pods/x/", 200, "resources  pods"},
		{"GET", "/openapi/v3/apis/apps/v1?hash=x", 200, "openapi"},
		{"GET", "/version", 200, "version"}, {"GET", "/version/", 200, "version"}, {"GET", "/metrics", 200, "metrics"},
		{"GET", "/healthz", 200, "ok"}, {"HEAD", "/readyz/ping", 200, "ok"},
		{"GET", "/apix", 404, missing}, {"GET", "/Version", 404, missing}, {"GET", "/debug/pprof/", 404, missing},
		{"GET", "/api%2Fv1/pods", 404, missing}, {"OPTIONS", "*", 404, missing}, {"CONNECT", "example.com:443", 404, missing}, {"BREW", "/apix", 404, missing},
	} {
		w := httptest.NewRecorder()
		router.ServeHTTP(w, httptest.NewRequest(c.method, c.target, nil))
		if w.Code != c.code || w.Body.String() != c.body {
			t.Errorf("%s %s: got %d %q, want %d %q", c.method, c.target, w.Code, w.Body, c.code, c.body)
		}
		if c.code == 404 && w.Header().Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("%s %s: header %v", c.method, c.target, w.Header())
		}
	}
	w := httptest.NewRecorder()
	router.ServeHTTP(w, httptest.NewRequest("BREW", "/api/v1/pods", nil))
	var status metav1.Status
	err := json.Unmarshal(w.Body.Bytes(), &status)
	if err != nil || w.Code != 405 || status.Reason != metav1.StatusReasonMethodNotAllowed || !strings.Contains(w.Header().Get("Allow"), "PATCH") {
		t.Errorf("BREW: got %d %s, Allow: %s", w.Code, w.Body, w.Header().Get("Allow"))
	}
	w = httptest.NewRecorder()
	router.ServeHTTP(w, httptest.NewRequest("GET", "/index.html", nil))
	var index struct{ Paths []string }
	if err := json.Unmarshal(w.Body.Bytes(), &index); err != nil {
		t.Fatal(err)
	}
	want := "/api /apis /healthz /healthz/ping /livez /livez/ping /metrics /metrics/slis /readyz /readyz/ping /readyz/shutdown /version"
	if got := strings.Join(index.Paths, " "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// With Profiling the runtime's profiles are served, but not the command line.
func TestProfiling(t *testing.T) {
	t.Parallel()
	router := NewRouter(Routes{Profiling: true})
	for path, code := range map[string]int{"/debug/pprof": 302, "/debug/pprof/": 200, "/debug/pprof/goroutine": 200, "/debug/pprof/cmdline": 404} {
		w := httptest.NewRecorder()
		router.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != code {
			t.Errorf("%s: got %d", path, w.Code)
		}
		if code == 302 && w.Header().Get("Location") != "/debug/pprof/" {
			t.Errorf("%s: to %s", path, w.Header().Get("Location"))
		}
	}
}
