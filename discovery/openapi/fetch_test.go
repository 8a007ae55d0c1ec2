package openapi

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
)

// A document that is too large is an error, and redirects are not followed.
func TestFetch(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/large":
			_, _ = w.Write(make([]byte, maxDocument+1))
		case r.Header.Get("If-None-Match") == `"1"`:
			w.WriteHeader(http.StatusNotModified)
		case r.Header.Get("X-Who") != "me" || r.Header.Get("Accept") != mediaJSON:
			w.WriteHeader(http.StatusForbidden)
		default:
			http.Redirect(w, r, "/large", http.StatusMovedPermanently)
		}
	}))
	defer server.Close()
	get := func(path, etag string) (*Answer, error) {
		return Fetch(t.Context(), http.DefaultTransport, server.URL, func(h http.Header) { h.Set("X-Who", "me") }, path, etag)
	}
	var broken *BrokenError
	if _, err := get("/large", ""); !errors.As(err, &broken) {
		t.Errorf("too large a document was read: %v", err)
	}
	if a, err := get("/small", `"1"`); err != nil || a.Code != http.StatusNotModified {
		t.Errorf("%+v %v", a, err)
	}
	if a, err := get("/small", ""); err != nil || a.Code != http.StatusMovedPermanently || a.Location != "/large" {
		t.Errorf("%+v %v", a, err)
	}
}
