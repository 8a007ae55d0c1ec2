package client

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// Get returns the text of an answer also if its code is an error, such as the checks of /readyz.
func TestGet(t *testing.T) {
	t.Parallel()
	const checks = "[+]ping ok\n[-]etcd failed: reason withheld\nreadyz check failed"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if r.URL.Query().Has("verbose") {
			w.WriteHeader(http.StatusInternalServerError)
		}
		io.WriteString(w, checks)
	}))
	defer s.Close()
	c := clientOf(t, s.URL, time.Minute, io.Discard)
	if text, err := c.Get(t.Context(), "/readyz", nil); err != nil || string(text) != checks {
		t.Errorf("200: %q, %v", text, err)
	}
	text, err := c.Get(t.Context(), "/readyz", map[string][]string{"verbose": {""}})
	if err == nil || strings.Contains(err.Error(), "\n") || strings.TrimSpace(string(text)) != checks {
		t.Errorf("500: %q, %v", text, err)
	}
}
