package sources

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"portico/discovery/rest"
)

// restDocument is how a REST server answers requests for its document.
type restDocument struct {
	body, etag, modified string
	code                 int // 0 is 200
	head                 int // what it says to HEAD; 0: what it says to GET
}

const petsDocument = `{"openapi":"3.1.0","paths":{"/pets":{"get":{}}}}`

func (b *backend) says(d restDocument) {
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

// A document is read again when the server says that it changed, or after documentInterval.
func TestRESTSourceAsksCheaply(t *testing.T) {
	past := time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat)
	toys := strings.Replace(petsDocument, "pets", "toys", 1) // of the same size
	for name, tc := range map[string]struct {
		first, then restDocument
		later       time.Duration
		want        string // what is asked
		changed     bool
	}{
		"an ETag":                      {restDocument{body: petsDocument, etag: `"1"`}, restDocument{body: petsDocument, etag: `"1"`}, time.Hour, "/openapi.json 304", false},
		"a weak ETag":                  {restDocument{body: petsDocument, etag: `W/"1"`}, restDocument{body: petsDocument, etag: `W/"1"`}, time.Hour, "/openapi.json 304", false},
		"another ETag":                 {restDocument{body: petsDocument, etag: `"1"`}, restDocument{body: petsDocument, etag: `"2"`}, 0, "/openapi.json 200", false},
		"Last-Modified":                {restDocument{body: petsDocument, modified: past}, restDocument{body: toys, modified: past}, time.Second, "/openapi.json 304", false},
		"Last-Modified, after a while": {restDocument{body: petsDocument, modified: past}, restDocument{body: toys, modified: past}, documentInterval, "/openapi.json 200", true},
		"modified":                     {restDocument{body: petsDocument, modified: past}, restDocument{body: toys, modified: past + " "}, time.Second, "/openapi.json 200", true},
		"neither":                      {restDocument{body: petsDocument}, restDocument{body: toys}, time.Second, "/openapi.json 200", false}, // HEAD
		"neither, after a while":       {restDocument{body: petsDocument}, restDocument{body: toys}, documentInterval, "/openapi.json 200", true},
		"neither, of another size":     {restDocument{body: petsDocument}, restDocument{body: toys + " "}, time.Second, "/openapi.json 200, /openapi.json 200", true},
		"neither, without HEAD":        {restDocument{body: petsDocument}, restDocument{body: toys, head: 405}, time.Second, "/openapi.json 405", false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBackend(t)
			b.says(tc.first)
			s := b.restSource()
			if changed, err := s.checked(t.Context()); !changed || err != nil {
				t.Fatal(changed, err)
			}
			b.says(tc.then)
			s.later(tc.later)
			b.forget()
			before := s.api.Load().api
			changed, err := s.checked(t.Context())
			if err != nil || changed != tc.changed || (s.api.Load().api != before) != tc.changed {
				t.Errorf("changed %v, parsed %v, error %v", changed, s.api.Load().api != before, err)
			}
			if asked := b.forget(); asked != tc.want {
				t.Errorf("asked %s, want %s", asked, tc.want)
			}
		})
	}
}

// A document that is too large is not read with every check; it is read when its size changed.
func TestRESTSourceReadsNothingTooLargeAgain(t *testing.T) {
	b := newBackend(t)
	b.says(restDocument{body: strings.Repeat(" ", rest.MaxDocument+1)})
	s := b.restSource()
	for range 3 {
		if err := s.Check(t.Context()); err == nil {
			t.Fatal("it passes")
		}
	}
	read := s.api.Load()
	if err := s.Check(t.Context()); err == nil || s.api.Load() != read {
		t.Errorf("read again: %v", err)
	}
	b.says(restDocument{body: petsDocument})
	if changed, err := s.checked(t.Context()); !changed || err != nil {
		t.Errorf("the right size: %v %v", changed, err)
	}
}

// A server that refuses HEAD is available while it answers GET.
func TestRESTSourceWithoutHEAD(t *testing.T) {
	b := newBackend(t)
	s := b.restSource()
	for i, step := range []struct {
		head int
		want string
	}{
		{0, "/openapi.json 200"}, // GET
		{404, "/openapi.json 404, /openapi.json 200"},
		{0, "/openapi.json 200"}, // HEAD
	} {
		b.says(restDocument{body: petsDocument, head: step.head})
		if err := s.Check(t.Context()); err != nil {
			t.Errorf("%d: %v", i, err)
		}
		if asked := b.forget(); asked != step.want {
			t.Errorf("%d: asked %s, want %s", i, asked, step.want)
		}
	}
}

// Between two reads a HEAD decides whether the server is available.
func TestRESTSourceIsAsked(t *testing.T) {
	b := newBackend(t)
	b.says(restDocument{body: petsDocument})
	s := b.restSource()
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	for code, good := range map[int]bool{200: true, 401: false, 403: false, 404: false, 410: false, 405: true, 501: true, 500: false, 503: false} {
		b.says(restDocument{body: petsDocument, code: code})
		if changed, err := s.checked(t.Context()); changed || (err == nil) != good {
			t.Errorf("%d: changed %v, error %v", code, changed, err)
		}
	}
	b.Close()
	if err := s.Check(t.Context()); err == nil {
		t.Error("a server that is gone passes")
	}
}
