package upstream

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// A connection that its server closes just before a request comes: whatever is safe
// goes by another, without any budget, because the server cannot have read it. It is
// the ordinary end of a connection that was idle for long, and is found before
// anything is sent; here it is closed after that was looked at.
func TestClosedBeforeTheRequest(t *testing.T) {
	for _, scheme := range []string{"http", "https"} {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		if scheme == "https" {
			server.StartTLS()
		} else {
			server.Start()
		}
		defer server.Close()
		endpoint := At(server.Listener.Addr().String())[0]
		endpoint.Base = &url.URL{Scheme: scheme, Host: "example.com"}
		p := turns()
		p.RetryPercent, p.RetriesPerSecond = 0, 0
		u := over(t, p, endpoint)
		if got := send(t, u, short, "GET", ""); got.code != 200 {
			t.Fatalf("%+v", got)
		}
		g, err := u.endpoints[0].ways.get()
		if err != nil {
			t.Fatal(err)
		}
		c := g.direct.take()
		if c == nil {
			t.Fatal("no connection was kept")
		}
		server.Config.SetKeepAlivesEnabled(false) // closes idle connections
		for deadline := time.Now().Add(20 * time.Second); alive(c.raw); {
			if time.Now().After(deadline) {
				t.Fatal("the server does not close the connection")
			}
			time.Sleep(time.Millisecond)
		}
		req, _ := http.NewRequestWithContext(t.Context(), "GET", "https://example.com/x", nil)
		message := "GET /x HTTP/1.1\r\nHost: example.com\r\n" + strings.Repeat("X-Line: x\r\n", 100) + "\r\n"
		_, state, err := c.exchange(req, []byte(message))
		if err == nil || state != sent || !c.missed {
			t.Errorf("%s: state %d, missed %v: %v", scheme, state, c.missed, err)
		}
	}
}
