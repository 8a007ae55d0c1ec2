package sources

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"portico/discovery/openapi"
	"portico/discovery/rest"
)

// rest makes the backend answer /openapi.json with these paths and an ETag; "" is none.
func (b *backend) rest(tag string, paths ...string) {
	var items []string
	for _, p := range paths {
		items = append(items, fmt.Sprintf(`%q:{"get":{}}`, p))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.override["/openapi.json"] = func(w http.ResponseWriter, r *http.Request) {
		if tag != "" {
			w.Header().Set("ETag", tag)
			if r.Header.Get("If-None-Match") == tag {
				w.WriteHeader(http.StatusNotModified)
				return
			}
		}
		fmt.Fprintf(w, `{"openapi":"3.1.0","servers":[{"url":"/api"}],"paths":{%s}}`, strings.Join(items, ","))
	}
}

func (b *backend) restSource() *RESTSource {
	cfg := b.source().cfg
	return NewRESTSource(cfg, RESTConfig{Group: "shop.example.com", Version: "v1"})
}

// resources are what discovery has, as one text.
func (s *RESTSource) resources() (out string) {
	gvs, _ := s.GroupVersions()
	for _, gv := range gvs {
		out += gv.Name() + ":"
		for _, r := range gv.Legacy {
			out += " " + r.Name
		}
	}
	return out
}

func TestRESTSource(t *testing.T) {
	const link = "/openapi/v3/apis/shop.example.com/v1"
	for _, tag := range []string{`"1"`, ""} {
		b := newBackend(t)
		s := b.restSource()
		if _, err := s.Document(t.Context(), link, ""); err == nil {
			t.Error("a document before anything is known")
		}
		if _, ok := s.PathPrefix(); ok || s.Fetched() {
			t.Error("something is known before anything was asked")
		}
		b.rest(tag, "/pets", "/Odd")
		if changed, err := s.checked(t.Context()); !changed || err != nil || s.resources() != "shop.example.com/v1: pets" || !s.Fetched() {
			t.Fatalf("%v %v %q", changed, err, s.resources())
		}
		if prefix, ok := s.PathPrefix(); !ok || prefix != "/api" {
			t.Errorf("prefix %q", prefix)
		}
		if summary, paths := s.LeftOut(); len(paths) != 1 || !strings.Contains(summary, "/Odd") {
			t.Errorf("left out: %q %v", summary, paths)
		}
		first := s.OpenAPI()["apis/shop.example.com/v1"]
		if a, err := s.Document(t.Context(), first, ""); err != nil || a.Code != 200 || link+"?hash="+openapi.ContentHash(a.Body) != first || openapi.Check(a.Body) != nil {
			t.Errorf("document at %s: %+v %v", first, a, err)
		}
		for _, other := range []string{"/openapi/v2", "/openapi/v3", link + "beta1?hash=1"} {
			if a, err := s.Document(t.Context(), other, ""); err != nil || a.Code != 404 {
				t.Errorf("%s: %+v %v", other, a, err)
			}
		}
		gvs, _ := s.GroupVersions()
		b.forget()
		if changed, err := s.checked(t.Context()); changed || err != nil {
			t.Errorf("the same again: %v %v", changed, err)
		}
		if asked := b.forget(); (asked == "/openapi.json 304") != (tag != "") {
			t.Errorf("asked %s", asked)
		}
		s.later(documentInterval)

		// What changes beside the resources does not change discovery.
		b.rest(strings.ReplaceAll(tag, "1", "2"), "/pets", "/Odder")
		if changed, err := s.checked(t.Context()); !changed || err != nil {
			t.Errorf("another document: %v %v", changed, err)
		}
		if again, _ := s.GroupVersions(); &again[0].Legacy[0] != &gvs[0].Legacy[0] {
			t.Error("discovery was made anew")
		}
		s.later(documentInterval)
		b.rest(strings.ReplaceAll(tag, "1", "3"), "/pets", "/toys")
		if changed, err := s.checked(t.Context()); !changed || err != nil || s.resources() != "shop.example.com/v1: pets toys" || s.OpenAPI()["apis/shop.example.com/v1"] == first {
			t.Errorf("one more: %v %v %q %v", changed, err, s.resources(), s.OpenAPI())
		}
	}
}

// checked checks the source and returns whether it called Config.Changed.
func (s *RESTSource) checked(ctx context.Context) (changed bool, err error) {
	s.cfg.Changed = func() { changed = true }
	err = s.Check(ctx)
	return changed, err
}

// later makes the document as much older.
func (s *RESTSource) later(by time.Duration) {
	d := *s.api.Load()
	d.read = d.read.Add(-by)
	s.api.Store(&d)
}

// An invalid document fails the check only while there was no valid one; otherwise the valid one
// remains, and Broken returns the error.
func TestRESTSourceKeepsTheGood(t *testing.T) {
	b := newBackend(t)
	s := b.restSource()
	bad := map[string]func(){
		"decode":         func() { b.answer("/openapi.json", 200, "", "<html>") },
		"OpenAPI 2":      func() { b.answer("/openapi.json", 200, "", `{"swagger":"2.0"}`) },
		"no path":        func() { b.rest(`"e"`) },
		"is larger than": func() { b.answer("/openapi.json", 200, "", strings.Repeat(" ", rest.MaxDocument+1)) },
	}
	for want, answer := range bad {
		answer()
		s.later(documentInterval)
		for i := range 2 { // also from memory
			if changed, err := s.checked(t.Context()); changed != (i == 0) || err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v %v", want, changed, err)
			}
		}
	}
	s.later(documentInterval)
	b.rest(`"1"`, "/pets")
	if err := s.Check(t.Context()); err != nil || s.Broken() != nil {
		t.Fatal(err, s.Broken())
	}
	urls := s.OpenAPI()
	for want, answer := range bad {
		answer()
		s.later(documentInterval)
		for i := range 2 {
			if changed, err := s.checked(t.Context()); changed != (i == 0) || err != nil {
				t.Errorf("%s: %v %v", want, changed, err)
			}
		}
		if all := s.Broken(); len(all) != 1 || !strings.Contains(all[0].Message, want) {
			t.Errorf("%s: %+v", want, all)
		}
		if s.resources() != "shop.example.com/v1: pets" || !reflect.DeepEqual(s.OpenAPI(), urls) {
			t.Errorf("%s: %s %v", want, s.resources(), s.OpenAPI())
		}
	}
	s.later(documentInterval)
	b.answer("/openapi.json", 503, "", "later")
	if err := s.Check(t.Context()); err == nil || s.resources() != "shop.example.com/v1: pets" {
		t.Errorf("unavailable: %v %s", err, s.resources())
	}
	s.later(documentInterval)
	b.rest(`"2"`, "/pets", "/toys")
	if changed, err := s.checked(t.Context()); !changed || err != nil || s.Broken() != nil {
		t.Errorf("good again: %v %v %v", changed, err, s.Broken())
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Check(gone); err == nil {
		t.Error("a server that cannot be reached passes")
	}
	if err := s.Follow(t.Context(), nil); !IsNoStream(err) {
		t.Error(err)
	}
}

// What an earlier gateway stored is served until the server answers.
func TestRESTSourceRestores(t *testing.T) {
	b := newBackend(t)
	b.rest(`"1"`, "/pets")
	first := b.restSource()
	if err := first.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	gvs, _ := first.GroupVersions()
	s := b.restSource()
	if !s.Restore(gvs) || !s.RestoreOpenAPI(first.FetchedOpenAPI()) || s.FetchedOpenAPI() != nil || s.Fetched() || s.resources() != first.resources() || !reflect.DeepEqual(s.OpenAPI(), first.OpenAPI()) {
		t.Errorf("restored %s %v", s.resources(), s.OpenAPI())
	}
	if changed, err := s.checked(t.Context()); !changed || err != nil || !s.Fetched() {
		t.Errorf("%v %v", changed, err)
	}
}
