package sources

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"portico/discovery/rest"
)

// document is what a REST server says when it is asked for its document.
type document struct {
	body, etag, modified string
	code                 int // 0 is 200
	head                 int // what it says to HEAD; 0: what it says to GET
}

const petsDocument = `{"openapi":"3.1.0","paths":{"/pets":{"get":{}}}}`

func (b *backend) says(d document) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.override["/openapi.json"] = func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		if d.etag != "" {
			h.Set("ETag", d.etag)
		}
		if d.modified != "" {
			h.Set("Last-Modified", d.modified)
		}
		h.Set("Content-Length", strconv.Itoa(len(d.body)))
		switch {
		case d.code != 0:
			h.Del("Content-Length")
			w.WriteHeader(d.code)
		case d.head != 0 && r.Method == http.MethodHead:
			h.Del("Content-Length")
			w.WriteHeader(d.head)
		case d.etag != "" && r.Header.Get("If-None-Match") == d.etag, d.modified != "" && r.Header.Get("If-Modified-Since") == d.modified:
			h.Del("Content-Length")
			w.WriteHeader(http.StatusNotModified)
		default:
			w.Write([]byte(d.body))
		}
	}
}

// A document is read again when there is a reason to: the server says that it
// changed, or enough time went by.
func TestRESTSourceAsksCheaply(t *testing.T) {
	past := time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat)
	toys := strings.Replace(petsDocument, "pets", "toys", 1) // of the same size
	for name, tc := range map[string]struct {
		first, then document
		later       time.Duration
		want        string // what is asked
		changed     bool
	}{
		"an ETag":                      {document{body: petsDocument, etag: `"1"`}, document{body: petsDocument, etag: `"1"`}, time.Hour, "/openapi.json 304", false},
		"a weak ETag":                  {document{body: petsDocument, etag: `W/"1"`}, document{body: petsDocument, etag: `W/"1"`}, time.Hour, "/openapi.json 304", false},
		"another ETag":                 {document{body: petsDocument, etag: `"1"`}, document{body: petsDocument, etag: `"2"`}, 0, "/openapi.json 200", false},
		"Last-Modified":                {document{body: petsDocument, modified: past}, document{body: toys, modified: past}, time.Second, "/openapi.json 304", false},
		"Last-Modified, after a while": {document{body: petsDocument, modified: past}, document{body: toys, modified: past}, documentInterval, "/openapi.json 200", true},
		"modified":                     {document{body: petsDocument, modified: past}, document{body: toys, modified: past + " "}, time.Second, "/openapi.json 200", true},
		"modified a moment ago": {document{body: petsDocument, modified: time.Now().UTC().Format(http.TimeFormat)},
			document{body: toys, modified: time.Now().UTC().Format(http.TimeFormat)}, 0, "/openapi.json 200", true},
		"neither":                  {document{body: petsDocument}, document{body: toys}, time.Second, "/openapi.json 200", false}, // HEAD
		"neither, after a while":   {document{body: petsDocument}, document{body: toys}, documentInterval, "/openapi.json 200", true},
		"neither, of another size": {document{body: petsDocument}, document{body: toys + " "}, time.Second, "/openapi.json 200, /openapi.json 200", true},
		"neither, without HEAD":    {document{body: petsDocument}, document{body: toys, head: 405}, time.Second, "/openapi.json 405", false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBackend(t)
			b.says(tc.first)
			s := b.restSource()
			if changed, err := s.Check(t.Context()); !changed || err != nil {
				t.Fatal(changed, err)
			}
			b.says(tc.then)
			s.later(tc.later)
			b.forget()
			before := s.api.Load().api
			changed, err := s.Check(t.Context())
			if err != nil || changed != tc.changed || (s.api.Load().api != before) != tc.changed {
				t.Errorf("changed %v, parsed %v, error %v", changed, s.api.Load().api != before, err)
			}
			if asked := b.forget(); asked != tc.want {
				t.Errorf("asked %s, want %s", asked, tc.want)
			}
		})
	}
}

// One that is too large is not read with every check; one that is not any more
// is.
func TestRESTSourceReadsNothingTooLargeAgain(t *testing.T) {
	b := newBackend(t)
	b.says(document{body: strings.Repeat(" ", rest.MaxDocument+1)})
	s := b.restSource()
	for range 3 {
		if _, err := s.Check(t.Context()); err == nil {
			t.Fatal("it passes")
		}
	}
	read := s.api.Load()
	if _, err := s.Check(t.Context()); err == nil || s.api.Load() != read {
		t.Errorf("read again: %v", err)
	}
	b.says(document{body: petsDocument})
	if changed, err := s.Check(t.Context()); !changed || err != nil {
		t.Errorf("the right size: %v %v", changed, err)
	}
}

// A server that refuses HEAD alone is asked for its document once for it, not with
// every check, until it takes HEAD.
func TestRESTSourceOfWhoRefusesHEAD(t *testing.T) {
	b := newBackend(t)
	s := b.restSource()
	for i, step := range []struct {
		head  int
		later time.Duration
		want  string
	}{
		{0, 0, "/openapi.json 200"},
		{404, 0, "/openapi.json 404, /openapi.json 200"},
		{404, 0, "/openapi.json 404"},
		{404, documentInterval, "/openapi.json 200"},
		{404, 0, "/openapi.json 404"},
		{0, 0, "/openapi.json 200"},
		{404, 0, "/openapi.json 404, /openapi.json 200"},
	} {
		b.says(document{body: petsDocument, head: step.head})
		s.later(step.later)
		if _, err := s.Check(t.Context()); err != nil {
			t.Errorf("%d: %v", i, err)
		}
		if asked := b.forget(); asked != step.want {
			t.Errorf("%d: asked %s, want %s", i, asked, step.want)
		}
	}
}

// A server that is not read is asked all the same whether it is there.
func TestRESTSourceIsAsked(t *testing.T) {
	b := newBackend(t)
	b.says(document{body: petsDocument})
	s := b.restSource()
	if _, err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	for code, good := range map[int]bool{200: true, 401: false, 403: false, 404: false, 410: false, 405: true, 501: true, 500: false, 503: false} {
		b.says(document{body: petsDocument, code: code})
		if changed, err := s.Check(t.Context()); changed || (err == nil) != good {
			t.Errorf("%d: changed %v, error %v", code, changed, err)
		}
	}
	b.Close()
	if _, err := s.Check(t.Context()); err == nil {
		t.Error("a server that is gone passes")
	}
}
