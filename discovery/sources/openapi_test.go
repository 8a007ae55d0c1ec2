package sources

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"portico/discovery"
	"portico/discovery/openapi"
)

// index sets the answer at /openapi/v3 to an index, with an ETag unless that is "".
func (b *backend) index(etag string, entries ...string) {
	b.answerTagged("/openapi/v3", etag, `{"paths":{`+strings.Join(entries, ",")+`}}`)
}

// entry returns the entry of a group/version with a hash in an index, and its URL.
func entry(key, hash string) (text, url string) {
	url = "/openapi/v3/" + key + "?hash=" + hash
	return fmt.Sprintf("%q:{%q:%q}", key, "serverRelativeURL", url), url
}

// v2 sets the answer at /openapi/v2 to a document with paths of these keys and an ETag.
func (b *backend) v2(etag string, keys ...string) {
	var paths []string
	for _, key := range keys {
		paths = append(paths, fmt.Sprintf(`"/%s/things":{"get":{"responses":{"200":{"description":%q}}}}`, key, etag))
	}
	b.answerTagged("/openapi/v2", etag, `{"swagger":"2.0","paths":{`+strings.Join(paths, ",")+`}}`)
}

// refresh reads the index, which must have these URLs: key, URL, and so on.
func refresh(t *testing.T, s *Source, wantChanged bool, urls ...string) {
	t.Helper()
	want := map[string]string{}
	for i := 0; i < len(urls); i += 2 {
		want[urls[i]] = urls[i+1]
	}
	changed, err := s.RefreshOpenAPI(t.Context())
	if err != nil || changed != wantChanged || len(want)+len(s.OpenAPI()) > 0 && !reflect.DeepEqual(s.OpenAPI(), want) {
		t.Errorf("changed %v, error %v, index %v", changed, err, s.OpenAPI())
	}
}

const (
	keyApps = "apis/apps/v1"
	keyNew  = "apis/new.example.com/v1"
)

func appsBackend(t *testing.T) (*backend, *Source) {
	b := newBackend(t, described("apps", "v1", "deployments"))
	s := b.source()
	t.Cleanup(s.Close)
	check(t, s, true)
	return b, s
}

// The index has the URLs of known group/versions. An invalid or unavailable one does not replace the
// last good one; that there is none does.
func TestOpenAPI(t *testing.T) {
	b, s := appsBackend(t)
	first, url := entry(keyApps, "A")
	other, _ := entry("apis/other.example.com/v1", "C")
	b.index(`"1"`, first, other)
	refresh(t, s, true, keyApps, url)
	b.requests()
	refresh(t, s, false, keyApps, url)
	if asked := b.requests(); asked != "/openapi/v3 304" {
		t.Errorf("requests %s", asked)
	}
	second, url := entry(keyApps, "B")
	b.index(`"2"`, second)
	refresh(t, s, true, keyApps, url)
	for code, body := range map[int]string{200: "<html>", 503: "later", 500: "{}", 403: "{}"} {
		s.openAPIErr.set(nil)
		b.answer("/openapi/v3", code, acceptLegacy, body)
		if changed, err := s.RefreshOpenAPI(t.Context()); err == nil || changed != (s.Broken() != nil) || s.OpenAPI()[keyApps] != url {
			t.Errorf("%d %s: %v %v, index %v", code, body, changed, err, s.OpenAPI())
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.RefreshOpenAPI(ended); err == nil || s.OpenAPI()[keyApps] != url {
		t.Errorf("unreachable: %v, index %v", err, s.OpenAPI())
	}
	b.answer("/openapi/v3", 404, "text/plain", "404 page not found")
	refresh(t, s, true)
	if s.Broken() != nil {
		t.Errorf("without an index: %v", s.Broken())
	}
}

// The index is read again when discovery changes, although its ETag is the same or there is none.
func TestOpenAPIFollowsDiscovery(t *testing.T) {
	for _, etag := range []string{`"1"`, ""} {
		b, s := appsBackend(t)
		apps, url := entry(keyApps, "A")
		more, urlMore := entry(keyNew, "B")
		b.index(etag, apps, more)
		refresh(t, s, true, keyApps, url)
		b.requests()
		refresh(t, s, false, keyApps, url)
		if asked := b.requests(); (asked == "") != (etag == "") {
			t.Errorf("ETag %s: requests %s", etag, asked)
		}
		b.serves(t, described("apps", "v1", "deployments"), described("new.example.com", "v1", "widgets"))
		check(t, s, true)
		refresh(t, s, true, keyApps, url, keyNew, urlMore)
	}
}

// Clients send the URLs to the gateway with their credentials: only the path of the document and its
// hash are kept.
func TestDocumentURL(t *testing.T) {
	const path = "/openapi/v3/apis/apps/v1"
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
		if got, ok := documentURL(keyApps, text); got != want || ok != (want != "") {
			t.Errorf("%q: %q %v, want %q", text, got, ok, want)
		}
	}
}

// A document is requested with the identity of the gateway. One that is too large or redirected is an
// error.
func TestDocument(t *testing.T) {
	b, s := appsBackend(t)
	const path = "/openapi/v3/apis/apps/v1"
	b.handle(path, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s", r.Header.Get("X-Remote-User"), r.Header.Get("Cache-Control"))
	})
	if data, err := s.Document(t.Context(), path+"?hash=A"); err != nil || string(data) != "system:kube-aggregator no-store" {
		t.Errorf("document %q, %v", data, err)
	}
	var broken *openapi.BrokenError
	b.answer(path, http.StatusOK, acceptLegacy, strings.Repeat(" ", maxOpenAPIDocument+1))
	if _, err := s.Document(t.Context(), path); !errors.As(err, &broken) {
		t.Errorf("too large: %v", err)
	}
	b.handle(path, http.RedirectHandler("/apis", http.StatusMovedPermanently).ServeHTTP)
	if _, err := s.Document(t.Context(), path); err == nil || errors.As(err, &broken) {
		t.Errorf("redirected: %v", err)
	}
}

// The documents of a server without v3 are converted from its v2 document, if that is the one that the
// index names.
func TestOpenAPIOfV2(t *testing.T) {
	b := newBackend(t, described("apps", "v1", "deployments"), described("new.example.com", "v1", "widgets"))
	b.answer("/openapi/v3", 404, "text/plain", "404 page not found")
	s := b.source()
	defer s.Close()
	check(t, s, true)
	link := func(etag string) string {
		return "/openapi/v3/" + keyApps + "?hash=" + openapi.ConvertedHash(etag, keyApps)
	}
	b.v2(`"1"`, keyApps, "apis/other.example.com/v1")
	refresh(t, s, true, keyApps, link(`"1"`))
	b.requests()
	refresh(t, s, false, keyApps, link(`"1"`))
	if asked := b.requests(); asked != "/openapi/v2 304" || !s.ConvertsOpenAPI() {
		t.Errorf("requests %s, converts %v", asked, s.ConvertsOpenAPI())
	}
	data, err := s.Document(t.Context(), link(`"1"`))
	if err != nil || openapi.Check(data) != nil || !strings.Contains(string(data), "/apis/apps/v1/things") || strings.Contains(string(data), "other.example.com") {
		t.Fatalf("document %s, %v", data, err)
	}
	if data, err := s.Document(t.Context(), "/openapi/v3/"+keyNew); err == nil {
		t.Errorf("a group/version without paths in v2: %s", data)
	}
	b.v2(`"2"`, keyApps)
	if _, err := s.Document(t.Context(), link(`"1"`)); !errors.Is(err, errChanged) {
		t.Errorf("after the v2 document changed: %v", err)
	}
	refresh(t, s, true, keyApps, link(`"2"`))

	// The server is upgraded to v3.
	apps, url := entry(keyApps, "A")
	b.index(`"3"`, apps)
	known := *s.openAPI.Load()
	known.read = known.read.Add(-2 * openAPIInterval)
	s.openAPI.Store(&known)
	refresh(t, s, true, keyApps, url)
	b.answer("/openapi/v3/apis/apps/v1", 200, acceptLegacy, `{"openapi":"3.0.0"}`)
	if data, err := s.Document(t.Context(), url); err != nil || string(data) != `{"openapi":"3.0.0"}` || s.ConvertsOpenAPI() {
		t.Errorf("the server's own document: %s, %v, converts %v", data, err, s.ConvertsOpenAPI())
	}
}

// Broken returns the error of an invalid index until there is a valid one; an unavailable server does
// not change it.
func TestBrokenOpenAPI(t *testing.T) {
	b, s := appsBackend(t)
	for name, tc := range map[string]struct {
		code   int
		v3, v2 string
		want   string // "": it is not broken
	}{
		"no JSON":      {200, "<html>", "", "decode"},
		"an error":     {500, "{}", "", "bad status"},
		"busy":         {503, "{}", "", ""},
		"too large":    {200, strings.Repeat(" ", maxOpenAPIIndex+1), "", "larger than"},
		"invalid v2":   {404, "", "{}", "no OpenAPI v2"},
		"v2 too large": {404, "", strings.Repeat(" ", maxOpenAPIDocument+1), "larger than"},
		"no OpenAPI":   {404, "", "", ""},
	} {
		apps, url := entry(keyApps, "A")
		b.index(`"1"`, apps)
		s.openAPI.Store(nil)
		if _, err := s.RefreshOpenAPI(t.Context()); err != nil || s.Broken() != nil || s.OpenAPI()[keyApps] != url {
			t.Fatalf("before %s: %v, %v", name, err, s.Broken())
		}
		b.answer("/openapi/v3", tc.code, "", tc.v3)
		b.answer("/openapi/v2", 200, "", tc.v2)
		if tc.v2 == "" {
			b.answer("/openapi/v2", 404, "", "")
		}
		_, _ = s.RefreshOpenAPI(t.Context())
		got := s.Broken()
		if tc.want == "" && got != nil || tc.want != "" && (len(got) != 1 || got[0].Key != "" || !strings.Contains(got[0].Message, tc.want)) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// A restored index is replaced by that of the server, and not the other way round.
func TestRestoreOpenAPI(t *testing.T) {
	b := newBackend(t, described("apps", "v1", "deployments"))
	s := b.source()
	defer s.Close()
	apps, url := entry(keyApps, "A")
	if !s.RestoreOpenAPI(&OpenAPIIndex{URLs: map[string]string{keyApps: url}}) || s.OpenAPI()[keyApps] != url || s.FetchedOpenAPI() != nil {
		t.Error("not restored")
	}
	check(t, s, true)
	b.index(`"1"`, apps)
	refresh(t, s, false, keyApps, url)
	if s.FetchedOpenAPI() == nil || s.RestoreOpenAPI(&OpenAPIIndex{}) {
		t.Error("the index of the server was replaced")
	}
}

// What an earlier gateway stored of a REST server is served until the server answers.
func TestRESTSourceRestores(t *testing.T) {
	b := newBackend(t)
	b.rest(`"1"`, "/pets")
	first := b.restSource()
	if err := first.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	var gvs []discovery.GroupVersion
	gvs, _ = first.GroupVersions()
	s := b.restSource()
	if !s.Restore(gvs) || !s.RestoreOpenAPI(first.FetchedOpenAPI()) || s.FetchedOpenAPI() != nil || s.Fetched() || !reflect.DeepEqual(s.OpenAPI(), first.OpenAPI()) {
		t.Errorf("restored %v", s.OpenAPI())
	}
	same(t, s.Source, "shop.example.com/v1:pets")
	if changed, err := s.checked(t.Context()); !changed || err != nil || !s.Fetched() {
		t.Errorf("%v %v", changed, err)
	}
}
