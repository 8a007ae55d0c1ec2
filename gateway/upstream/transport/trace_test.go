package transport

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"testing"
)

// Informational responses are forwarded over HTTP/1.1 up to a bound, filtered and before
// the answer. Over HTTP/2 they are not.
func TestInformationalResponses(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for i := range len(r.URL.Path) - 1 {
			w.Header().Set("Link", fmt.Sprint(i))
			w.Header().Set("Audit-Id", "x")
			w.WriteHeader(http.StatusEarlyHints)
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	e := newCounted(t, "tcp", server.Listener.Addr().String(), trustOf(server))
	for _, c := range []struct {
		protocol Protocol
		path     string
		want     []string // nil: no answer
	}{
		{HTTP1, "/xx", []string{"0", "1"}},
		{HTTP1, "/xxxxx", []string{"0", "1", "2", "3", "4"}},
		{HTTP1, "/xxxxxx", nil},
		{HTTP2, "/xx", []string{}},
		{HTTP1, "/", []string{}},
	} {
		hints := []string{}
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			if code != http.StatusEarlyHints || h.Get("Audit-Id") != "" {
				t.Errorf("%d %v", code, h)
			}
			hints = append(hints, h.Get("Link"))
			return nil
		}})
		req, _ := http.NewRequestWithContext(ctx, "GET", "https://example.com"+c.path, nil)
		res, _, err := e.RoundTrip(req, Options{Protocol: c.protocol, Informational: func(h http.Header) { h.Del("Audit-Id") }})
		if err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			res.Body.Close()
		}
		if (err == nil) != (c.want != nil) || err == nil && !slices.Equal(hints, c.want) {
			t.Errorf("%s by protocol %d: %q, %v; want %q", c.path, c.protocol, hints, err, c.want)
		}
	}
}
