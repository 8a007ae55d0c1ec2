package egress

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A redirect of any kind is an error that names the URL without its query, and nothing reaches where it leads. Other answers pass.
func TestRedirectsAreRefused(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s was followed", r.Method, r.URL)
	}))
	defer elsewhere.Close()
	code := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", elsewhere.URL)
		w.WriteHeader(code)
	}))
	defer server.Close()
	for code = range map[int]bool{200: true, 300: false, 301: false, 302: false, 303: false, 304: true, 305: false, 307: false, 308: false, 404: true} {
		passes := code/100 != 3 || code == http.StatusNotModified
		res, err := Client(nil, 0).Post(server.URL+"/review?key=s3cr3t", "", strings.NewReader("{}"))
		if err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
		}
		if (err == nil) != passes {
			t.Errorf("%d: %v", code, err)
		}
		if _, text, _ := strings.Cut(errorText(err), ": "); !passes && (!strings.Contains(text, server.URL+"/review answered") || strings.Contains(text, "s3cr3t")) {
			t.Errorf("%d: %q", code, text)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
