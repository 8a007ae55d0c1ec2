package attack

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
)

// The first 401 on an HTTP/2 connection comes without a GOAWAY, because a client that is
// still sending its body would lose the response. The second one ends the connection.
func TestConnectionEndsWithTheSecondRefusal(t *testing.T) {
	t.Parallel()
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: target.trust}}
	defer transport.CloseIdleConnections()
	for n, reused := range []bool{false, true, false, true} {
		var got httptrace.GotConnInfo
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { got = info }})
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+target.host+"/api/v1/namespaces", strings.NewReader(`{"kind":"Namespace"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer forged")
		res, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != http.StatusUnauthorized || res.ProtoMajor != 2 || !strings.Contains(string(body), `"Unauthorized"`) {
			t.Errorf("request %d: %s %s %s (%v), want 401 over HTTP/2", n, res.Proto, res.Status, body, err)
		}
		if got.Reused != reused {
			t.Errorf("request %d: on a connection of an earlier one: %v, want %v", n, got.Reused, reused)
		}
	}
}
