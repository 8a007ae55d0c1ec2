package upstream

import (
	"net"
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

// A request that is refused for its own header does not count against the endpoint,
// however the server refuses it.
func TestLargeHeaderEjectsNoEndpoint(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 2*largeHeader)
	resets := func(code http2.ErrCode) Endpoint {
		return startFrames(t, func(_ int, s uint32, fr *http2.Framer) bool { _ = fr.WriteRSTStream(s, code); return false }).Endpoint
	}
	dropping, _ := rough(t, false, func(conn net.Conn) {})
	limited := startNode(t, "tls", nil)
	limited.Config.MaxHeaderBytes = 4 << 10 // HTTP/2 servers announce it
	for name, c := range map[string]struct {
		e      Endpoint
		k      kind
		method string
	}{
		"protocol error":      {resets(http2.ErrCodeProtocol), long, "POST"},
		"refused stream":      {resets(http2.ErrCodeRefusedStream), long, "POST"},
		"enhance your calm":   {resets(http2.ErrCodeEnhanceYourCalm), long, "POST"},
		"closed connection":   {dropping, short, "GET"},
		"said to be too much": {limited.endpoint(), long, "POST"},
		"answered 431":        {limited.endpoint(), short, "GET"},
	} {
		t.Run(name, func(t *testing.T) {
			good := startNode(t, "tls", nil)
			p := turns()
			p.Retries.BudgetPercent, p.Retries.MinPerSecond = 0, 0
			u := over(t, p, c.e)
			for range 2 { // the first learns what the server takes
				send(t, u, c.k, "GET", "")
			}
			u.SetEndpoints([]Endpoint{c.e, good.endpoint()})
			bad := u.endpoints[0]
			bad.health.Connections.Good()
			for range 8 { // half of them go to it
				send(t, u, c.k, c.method, "", "X-Large", large)
			}
			if len(gets(u)) != 2 || bad.health.Connections.Failed(2) {
				t.Errorf("it is %s for %s", u.Status().Endpoints[0].State, bad.health.LastError)
			}
			bad.health.Connections.Good()
			if c.e.URL == limited.endpoint().URL {
				return // it takes small ones
			}
			for range 8 { // half of them go to it
				send(t, u, c.k, c.method, "")
			}
			if len(gets(u)) != 1 {
				t.Error("it fails others too, and is not ejected")
			}
		})
	}
}
