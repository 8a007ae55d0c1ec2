package sources

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"portico/discovery/openapi"
	"portico/discovery/rest"
)

const (
	documentPath = "/openapi.json"
	petsDocument = `{"openapi":"3.1.0","paths":{"/pets":{"get":{}}}}`
	toysDocument = `{"openapi":"3.1.0","paths":{"/toys":{"get":{}}}}` // of the same size
)

// rest sets the answer at documentPath to a document with these paths, with an ETag unless that is "".
func (b *backend) rest(etag string, paths ...string) {
	var items []string
	for _, p := range paths {
		items = append(items, fmt.Sprintf(`%q:{"get":{}}`, p))
	}
	b.answerTagged(documentPath, etag, `{"openapi":"3.1.0","servers":[{"url":"/api"}],"paths":{`+strings.Join(items, ",")+`}}`)
}

// answersHead sets the answer at documentPath to a document, and to HEAD to a status; 0: as to GET.
func (b *backend) answersHead(document string, code int) {
	b.handle(documentPath, func(w http.ResponseWriter, r *http.Request) {
		if code != 0 && r.Method == http.MethodHead {
			w.WriteHeader(code)
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(document)))
		fmt.Fprint(w, document)
	})
}

func (b *backend) restSource() *RESTSource {
	return NewRESTSource(b.config(), RESTConfig{Group: "shop.example.com", Version: "v1"})
}

// checked checks the source and returns whether it called Config.Changed.
func (s *RESTSource) checked(ctx context.Context) (changed bool, err error) {
	s.cfg.Changed = func() { changed = true }
	err = s.Check(ctx)
	return changed, err
}

// later makes the document older.
func (s *RESTSource) later(by time.Duration) {
	d := *s.api.Load()
	d.read = d.read.Add(-by)
	s.api.Store(&d)
}

// Discovery, the path prefix and the OpenAPI document are derived from the document of the server and
// follow its changes.
func TestRESTSource(t *testing.T) {
	const link = "/openapi/v3/apis/shop.example.com/v1"
	for _, etag := range []string{`"1"`, ""} {
		b := newBackend(t)
		s := b.restSource()
		if _, err := s.Document(t.Context(), link); err == nil {
			t.Error("a document before the first check")
		}
		if _, ok := s.PathPrefix(); ok || s.Fetched() {
			t.Error("something is known before the first check")
		}
		b.rest(etag, "/pets", "/Odd")
		if changed, err := s.checked(t.Context()); !changed || err != nil || !s.Fetched() {
			t.Fatalf("first check: changed %v, %v", changed, err)
		}
		same(t, s.Source, "shop.example.com/v1:pets")
		prefix, ok := s.PathPrefix()
		if summary, paths := s.LeftOut(); !ok || prefix != "/api" || len(paths) != 1 || !strings.Contains(summary, "/Odd") {
			t.Errorf("prefix %q, left out: %q %v", prefix, summary, paths)
		}
		first := s.OpenAPI()["apis/shop.example.com/v1"]
		if data, err := s.Document(t.Context(), first); err != nil || link+"?hash="+openapi.ContentHash(data) != first || openapi.Check(data) != nil {
			t.Errorf("document at %s: %s %v", first, data, err)
		}
		for _, other := range []string{"/openapi/v2", "/openapi/v3", link + "beta1?hash=1"} {
			if data, err := s.Document(t.Context(), other); err == nil {
				t.Errorf("%s: %s", other, data)
			}
		}
		gvs, _ := s.GroupVersions()
		b.requests()
		if changed, err := s.checked(t.Context()); changed || err != nil {
			t.Errorf("unchanged: changed %v, %v", changed, err)
		}
		if asked := b.requests(); (asked == documentPath+" 304") != (etag != "") {
			t.Errorf("requests %s", asked)
		}
		s.later(documentInterval)

		// A change of other paths does not change discovery.
		b.rest(strings.ReplaceAll(etag, "1", "2"), "/pets", "/Odder")
		if changed, err := s.checked(t.Context()); !changed || err != nil {
			t.Errorf("another document: changed %v, %v", changed, err)
		}
		if again, _ := s.GroupVersions(); !unchanged(again, gvs) {
			t.Error("equal discovery has other slices")
		}
		s.later(documentInterval)
		b.rest(strings.ReplaceAll(etag, "1", "3"), "/pets", "/toys")
		if changed, err := s.checked(t.Context()); !changed || err != nil || s.OpenAPI()["apis/shop.example.com/v1"] == first {
			t.Errorf("one more resource: changed %v, %v, %v", changed, err, s.OpenAPI())
		}
		same(t, s.Source, "shop.example.com/v1:pets", "shop.example.com/v1:toys")
	}
}

// An invalid document fails the check only while there was no valid one; otherwise the valid one
// remains, and Broken returns the error.
func TestRESTSourceKeepsTheValidDocument(t *testing.T) {
	b := newBackend(t)
	s := b.restSource()
	invalid := map[string]string{
		"decode": "<html>", "OpenAPI 2": `{"swagger":"2.0"}`, "no path": `{"openapi":"3.1.0","paths":{}}`,
		"is larger than": strings.Repeat(" ", rest.MaxDocument+1),
	}
	each := func(check func(want string, i int, changed bool, err error)) {
		for want, document := range invalid {
			b.answer(documentPath, 200, "", document)
			s.later(documentInterval)
			for i := range 2 { // also from memory
				changed, err := s.checked(t.Context())
				check(want, i, changed, err)
			}
		}
	}
	each(func(want string, i int, changed bool, err error) {
		if changed != (i == 0) || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s before a valid one: changed %v, %v", want, changed, err)
		}
	})
	s.later(documentInterval)
	b.rest(`"1"`, "/pets")
	if err := s.Check(t.Context()); err != nil || s.Broken() != nil {
		t.Fatal(err, s.Broken())
	}
	urls := s.OpenAPI()
	each(func(want string, i int, changed bool, err error) {
		if all := s.Broken(); changed != (i == 0) || err != nil || len(all) != 1 || !strings.Contains(all[0].Message, want) {
			t.Errorf("%s after a valid one: changed %v, %v, %+v", want, changed, err, all)
		}
		same(t, s.Source, "shop.example.com/v1:pets")
		if !reflect.DeepEqual(s.OpenAPI(), urls) {
			t.Errorf("%s: %v", want, s.OpenAPI())
		}
	})
	s.later(documentInterval)
	b.answer(documentPath, 503, "", "later")
	if err := s.Check(t.Context()); err == nil {
		t.Error("an unavailable server passes")
	}
	same(t, s.Source, "shop.example.com/v1:pets")
	s.later(documentInterval)
	b.rest(`"2"`, "/pets", "/toys")
	if changed, err := s.checked(t.Context()); !changed || err != nil || s.Broken() != nil {
		t.Errorf("valid again: %v %v %v", changed, err, s.Broken())
	}
	if err := s.Follow(t.Context(), nil); !IsNoStream(err) {
		t.Error(err)
	}
}

// An unchanged document is not read again: the server says that it is unchanged, by its ETag, or up to
// documentInterval by Last-Modified or its size.
func TestRESTSourceDoesNotReadUnchangedDocuments(t *testing.T) {
	const ok, unchanged = documentPath + " 200", documentPath + " 304"
	past := time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat)
	for name, tc := range map[string]struct {
		first, then string // ETag or Last-Modified; "": HEAD decides
		document    string
		head        int
		later       time.Duration
		want        string // requests
		changed     bool
	}{
		"an ETag":              {`"1"`, `"1"`, petsDocument, 0, time.Hour, unchanged, false},
		"a weak ETag":          {`W/"1"`, `W/"1"`, petsDocument, 0, time.Hour, unchanged, false},
		"another ETag":         {`"1"`, `"2"`, petsDocument, 0, 0, ok, false},
		"Last-Modified":        {past, past, toysDocument, 0, time.Second, unchanged, false},
		"Last-Modified, later": {past, past, toysDocument, 0, documentInterval, ok, true},
		"modified":             {past, past + " ", toysDocument, 0, time.Second, ok, true},
		"the same size":        {"", "", toysDocument, 0, time.Second, ok, false},
		"the same size, later": {"", "", toysDocument, 0, documentInterval, ok, true},
		"another size":         {"", "", toysDocument + " ", 0, time.Second, ok + ", " + ok, true},
		"without HEAD":         {"", "", toysDocument, 405, time.Second, documentPath + " 405", false},
		"with a HEAD of 404":   {"", "", petsDocument, 404, time.Second, documentPath + " 404, " + ok, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBackend(t)
			set := func(tag, document string, head int) {
				switch {
				case tag == "":
					b.answersHead(document, head)
				case isETag(tag):
					b.answerTagged(documentPath, tag, document)
				default:
					b.handle(documentPath, func(w http.ResponseWriter, r *http.Request) {
						w.Header().Set("Last-Modified", tag)
						if r.Header.Get("If-Modified-Since") == tag {
							w.WriteHeader(http.StatusNotModified)
							return
						}
						fmt.Fprint(w, document)
					})
				}
			}
			set(tc.first, petsDocument, 0)
			s := b.restSource()
			if changed, err := s.checked(t.Context()); !changed || err != nil {
				t.Fatal(changed, err)
			}
			set(tc.then, tc.document, tc.head)
			s.later(tc.later)
			b.requests()
			before := s.api.Load().api
			if changed, err := s.checked(t.Context()); err != nil || changed != tc.changed || (s.api.Load().api != before) != tc.changed {
				t.Errorf("changed %v, parsed %v, error %v", changed, s.api.Load().api != before, err)
			}
			if asked := b.requests(); asked != tc.want {
				t.Errorf("requests %s, want %s", asked, tc.want)
			}
		})
	}
}

// A document that is too large is read again only when its size changes.
func TestRESTSourceDoesNotReadLargeDocumentsAgain(t *testing.T) {
	b := newBackend(t)
	b.answersHead(strings.Repeat(" ", rest.MaxDocument+1), 0)
	s := b.restSource()
	if err := s.Check(t.Context()); err == nil {
		t.Fatal("it passes")
	}
	read := s.api.Load()
	for range 2 {
		if err := s.Check(t.Context()); err == nil || s.api.Load() != read {
			t.Errorf("read again: %v", err)
		}
	}
	b.answersHead(petsDocument, 0)
	if changed, err := s.checked(t.Context()); !changed || err != nil {
		t.Errorf("of the right size: %v %v", changed, err)
	}
}

// Between two reads a HEAD decides whether the server is available.
func TestRESTSourceAvailability(t *testing.T) {
	b := newBackend(t)
	b.answersHead(petsDocument, 0)
	s := b.restSource()
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	for code, available := range map[int]bool{401: false, 403: false, 404: false, 410: false, 405: true, 501: true, 500: false, 503: false} {
		b.answer(documentPath, code, "", "")
		if changed, err := s.checked(t.Context()); changed || (err == nil) != available {
			t.Errorf("%d: changed %v, error %v", code, changed, err)
		}
	}
	b.Close()
	if err := s.Check(t.Context()); err == nil {
		t.Error("a stopped server passes")
	}
}
