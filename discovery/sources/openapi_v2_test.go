package sources

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"portico/discovery/openapi"
)

// v2 makes the backend answer /openapi/v2 with paths of these keys and an ETag.
func (b *backend) v2(tag string, keys ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var paths []string
	for _, key := range keys {
		paths = append(paths, fmt.Sprintf(`"/%s/things":{"get":{"responses":{"200":{"description":%q}}}}`, key, tag))
	}
	b.override["/openapi/v2"] = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", tag)
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		fmt.Fprintf(w, `{"swagger":"2.0","paths":{%s}}`, strings.Join(paths, ","))
	}
}

// The documents of a server without v3 are converted from its v2 document.
func TestOpenAPIOfV2(t *testing.T) {
	b := newBackend(t, described("apps", "v1", "deployments"), described("new.example.com", "v1", "widgets"))
	b.answer("/openapi/v3", 404, "text/plain", "404 page not found")
	s := b.source()
	check(t, s, true)
	b.v2(`"1"`, "apis/apps/v1", "apis/other.example.com/v1")
	link := func(tag string) string {
		return "/openapi/v3/apis/apps/v1?hash=" + openapi.ConvertedHash(tag, "apis/apps/v1")
	}
	refresh(t, s, true, map[string]string{"apis/apps/v1": link(`"1"`)})
	b.forget()
	refresh(t, s, false, map[string]string{"apis/apps/v1": link(`"1"`)})
	if asked := b.forget(); asked != "/openapi/v2 304" {
		t.Errorf("asked %s", asked)
	}
	if !s.ConvertsOpenAPI() {
		t.Error("the server is said to know v3")
	}
	a, err := s.Document(t.Context(), link(`"1"`), "")
	if err != nil || a.Code != http.StatusOK || openapi.Check(a.Body) != nil || !strings.Contains(string(a.Body), "/apis/apps/v1/things") || strings.Contains(string(a.Body), "other.example.com") {
		t.Fatalf("document %+v, %v", a, err)
	}
	if a, err := s.Document(t.Context(), "/openapi/v3/apis/new.example.com/v1", ""); err != nil || a.Code != http.StatusNotFound {
		t.Errorf("a document that v2 has nothing of: %+v, %v", a, err)
	}
	if a, err := s.Document(t.Context(), "/openapi/v2", ""); err != nil || a.Code != http.StatusOK {
		t.Errorf("the v2 document itself: %+v, %v", a, err)
	}

	// The converted document must be the one that the index names.
	b.v2(`"2"`, "apis/apps/v1")
	if _, err := s.Document(t.Context(), link(`"1"`), ""); !errors.Is(err, errChanged) {
		t.Errorf("after it changed: %v", err)
	}
	refresh(t, s, true, map[string]string{"apis/apps/v1": link(`"2"`)})

	// The server is upgraded to v3.
	b.index(`"3"`, entry("apis/apps/v1", "/openapi/v3/apis/apps/v1?hash=A"))
	known := *s.openAPI.Load()
	known.read = known.read.Add(-2 * openAPIInterval)
	s.openAPI.Store(&known)
	refresh(t, s, true, map[string]string{"apis/apps/v1": "/openapi/v3/apis/apps/v1?hash=A"})
	if s.ConvertsOpenAPI() {
		t.Error("the server is said not to know v3")
	}
	b.answer("/openapi/v3/apis/apps/v1", 200, "application/json", `{"openapi":"3.0.0"}`)
	if a, err := s.Document(t.Context(), "/openapi/v3/apis/apps/v1?hash=A", ""); err != nil || string(a.Body) != `{"openapi":"3.0.0"}` {
		t.Errorf("its own document: %+v, %v", a, err)
	}
}

// Broken returns the error of an invalid index until a valid one; an unavailable server does not
// change it.
func TestBrokenOpenAPI(t *testing.T) {
	b := newBackend(t, described("apps", "v1", "deployments"))
	s := b.source()
	check(t, s, true)
	b.index(`"1"`, entry("apis/apps/v1", "/openapi/v3/apis/apps/v1?hash=A"))
	for name, tc := range map[string]struct {
		answer func()
		want   string // "": it is not broken
	}{
		"no JSON":    {func() { b.answer("/openapi/v3", 200, "application/json", "<html>") }, "decode"},
		"an error":   {func() { b.answer("/openapi/v3", 500, "application/json", "{}") }, "bad status"},
		"busy":       {func() { b.answer("/openapi/v3", 503, "application/json", "{}") }, ""},
		"too large":  {func() { b.answer("/openapi/v3", 200, "application/json", strings.Repeat(" ", maxOpenAPIIndex+1)) }, "larger than"},
		"v2 is none": {func() { b.answer("/openapi/v3", 404, "", ""); b.answer("/openapi/v2", 200, "", "{}") }, "no OpenAPI v2"},
		"v2 too large": {func() {
			b.answer("/openapi/v3", 404, "", "")
			b.answer("/openapi/v2", 200, "", strings.Repeat(" ", maxV2+1))
		}, "larger than"},
		"no OpenAPI": {func() { b.answer("/openapi/v3", 404, "", ""); b.answer("/openapi/v2", 404, "", "") }, ""},
	} {
		b.index(`"1"`, entry("apis/apps/v1", "/openapi/v3/apis/apps/v1?hash=A"))
		s.openAPI.Store(nil)
		if _, err := s.RefreshOpenAPI(t.Context()); err != nil || s.Broken() != nil {
			t.Fatalf("before %s: %v, %v", name, err, s.Broken())
		}
		tc.answer()
		_, _ = s.RefreshOpenAPI(t.Context())
		got := s.Broken()
		if tc.want == "" && got != nil || tc.want != "" && (len(got) != 1 || got[0].Key != "" || !strings.Contains(got[0].Message, tc.want)) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestRestoreOpenAPI(t *testing.T) {
	b := newBackend(t, described("apps", "v1", "deployments"))
	s := b.source()
	kept := map[string]string{"apis/apps/v1": "/openapi/v3/apis/apps/v1?hash=A"}
	if !s.RestoreOpenAPI(&OpenAPIIndex{URLs: kept}) || s.OpenAPI()["apis/apps/v1"] == "" {
		t.Error("not restored")
	}
	check(t, s, true)
	b.index(`"1"`, entry("apis/apps/v1", "/openapi/v3/apis/apps/v1?hash=A"))
	refresh(t, s, false, kept)
	if s.FetchedOpenAPI() == nil || s.RestoreOpenAPI(&OpenAPIIndex{}) {
		t.Error("what the server said was replaced")
	}
}
