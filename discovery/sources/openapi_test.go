package sources

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

// index makes the backend answer /openapi/v3 with these entries and an ETag; "" is none.
func (b *backend) index(tag string, entries ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.override["/openapi/v3"] = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if tag != "" {
			w.Header().Set("ETag", tag)
		}
		if tag != "" && r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		fmt.Fprintf(w, `{"paths":{%s}}`, strings.Join(entries, ","))
	}
}

func entry(key, url string) string { return fmt.Sprintf("%q:{%q:%q}", key, "serverRelativeURL", url) }

// refresh asks and checks the answer.
func refresh(t *testing.T, s *Source, wantChanged bool, want map[string]string) {
	t.Helper()
	changed, err := s.RefreshOpenAPI(t.Context())
	if err != nil || changed != wantChanged || len(want)+len(s.OpenAPI()) > 0 && !reflect.DeepEqual(s.OpenAPI(), want) {
		t.Errorf("changed %v, error %v, index %v", changed, err, s.OpenAPI())
	}
}

func TestOpenAPI(t *testing.T) {
	b := newBackend(t, described("", "v1", "configmaps"), described("apps", "v1", "deployments"))
	s := b.source()
	check(t, s, true)
	b.index(`"1"`, entry("api/v1", "/openapi/v3/api/v1?hash=A"), entry("apis/other.example.com/v1", "/openapi/v3/apis/other.example.com/v1?hash=C"))
	one := map[string]string{"api/v1": "/openapi/v3/api/v1?hash=A"}
	refresh(t, s, true, one)
	b.forget()
	refresh(t, s, false, one)
	if asked := b.forget(); asked != "/openapi/v3 304" {
		t.Errorf("asked %s", asked)
	}
	b.index(`"2"`, entry("api/v1", "/openapi/v3/api/v1?hash=B"))
	two := map[string]string{"api/v1": "/openapi/v3/api/v1?hash=B"}
	refresh(t, s, true, two)

	// An invalid index does not replace the last good one.
	for name, answer := range map[string]func(){
		"no JSON":       func() { b.answer("/openapi/v3", 200, "application/json", "<html>") },
		"unavailable":   func() { b.answer("/openapi/v3", 503, "text/plain", "later") },
		"cannot":        func() { b.answer("/openapi/v3", 500, "application/json", "{}") },
		"not permitted": func() { b.answer("/openapi/v3", 403, "application/json", "{}") },
	} {
		s.openAPIErr.set(nil)
		answer()
		if changed, err := s.RefreshOpenAPI(t.Context()); err == nil || changed != (s.Broken() != nil) || !reflect.DeepEqual(s.OpenAPI(), two) {
			t.Errorf("%s: %v %v, kept %v", name, changed, err, s.OpenAPI())
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.RefreshOpenAPI(gone); err == nil || !reflect.DeepEqual(s.OpenAPI(), two) {
		t.Errorf("unreachable: %v, kept %v", err, s.OpenAPI())
	}
	b.answer("/openapi/v3", 404, "text/plain", "404 page not found")
	refresh(t, s, true, nil)
	if s.Broken() != nil {
		t.Errorf("without an index: %v", s.Broken())
	}
}

// The index may be newer than discovery: it is read again when discovery changes, although it did
// not change itself.
func TestOpenAPIFollowsDiscovery(t *testing.T) {
	b := newBackend(t, described("apps", "v1", "deployments"))
	s := b.source()
	check(t, s, true)
	b.index(`"1"`, entry("apis/apps/v1", "/openapi/v3/apis/apps/v1?hash=A"), entry("apis/new.example.com/v1", "/openapi/v3/apis/new.example.com/v1?hash=B"))
	refresh(t, s, true, map[string]string{"apis/apps/v1": "/openapi/v3/apis/apps/v1?hash=A"})
	b.serves(t, described("apps", "v1", "deployments"), described("new.example.com", "v1", "widgets"))
	check(t, s, true)
	refresh(t, s, true, map[string]string{
		"apis/apps/v1": "/openapi/v3/apis/apps/v1?hash=A", "apis/new.example.com/v1": "/openapi/v3/apis/new.example.com/v1?hash=B",
	})
}

// The index of a server without ETags is read again when its discovery changed, not with every
// check.
func TestOpenAPIWithoutETags(t *testing.T) {
	b := newBackend(t, described("apps", "v1", "deployments"))
	s := b.source()
	check(t, s, true)
	b.index("", entry("apis/apps/v1", "/openapi/v3/apis/apps/v1?hash=A"))
	refresh(t, s, true, map[string]string{"apis/apps/v1": "/openapi/v3/apis/apps/v1?hash=A"})
	b.index("", entry("apis/apps/v1", "/openapi/v3/apis/apps/v1?hash=B"))
	b.forget()
	refresh(t, s, false, map[string]string{"apis/apps/v1": "/openapi/v3/apis/apps/v1?hash=A"})
	if asked := b.forget(); asked != "" {
		t.Errorf("asked %s", asked)
	}
	b.serves(t, described("apps", "v1", "deployments", "replicasets"))
	check(t, s, true)
	refresh(t, s, true, map[string]string{"apis/apps/v1": "/openapi/v3/apis/apps/v1?hash=B"})
}

// The URLs lead clients back to the gateway, with their credentials.
func TestDocumentURL(t *testing.T) {
	const key, path = "apis/apps/v1", "/openapi/v3/apis/apps/v1"
	for text, want := range map[string]string{
		path:                          path,
		path + "?hash=A1":             path + "?hash=A1",
		path + "?hash=A%26b&x=y":      path + "?hash=A%26b",
		path + "?":                    path,
		"":                            "",
		"https://evil.example" + path: "",
		path + "beta1?hash=A":         "",
		path + "/../../../api/v1/x":   "",
		"//evil.example" + path:       "",
		path + "?hash=%zz":            "",
		path + "?hash=" + strings.Repeat("A", 2000): "",
	} {
		if got, ok := documentURL(key, text); got != want || ok != (want != "") {
			t.Errorf("%q: %q %v, want %q", text, got, ok, want)
		}
	}
}
