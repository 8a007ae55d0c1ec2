package proxy

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/gateway/upstream"
	"portico/resource/serve/filter"
)

// refusing is an endpoint that processes no request, and counts its connections.
type refusing struct {
	net.Listener
	refused atomic.Int64
}

func startRefusing(t *testing.T, config *tls.Config, refuse func(net.Conn)) *refusing {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &refusing{Listener: l}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			r.refused.Add(1)
			go func() {
				defer conn.Close()
				refuse(tls.Server(conn, config))
			}()
		}
	}()
	return r
}

// refuseStreams resets every request with REFUSED_STREAM when it is complete.
func refuseStreams(conn net.Conn) {
	byFrames(conn, func(fr *http2.Framer, stream uint32) { _ = fr.WriteRSTStream(stream, http2.ErrCodeRefusedStream) })
}

// byFrames speaks HTTP/2; on is called when a request is complete.
func byFrames(conn net.Conn, on func(fr *http2.Framer, stream uint32)) {
	if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	fr := http2.NewFramer(conn, conn)
	_ = fr.WriteSettings()
	for {
		frame, err := fr.ReadFrame()
		if err != nil {
			return
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = fr.WriteSettingsAck()
			}
		case *http2.PingFrame:
			_ = fr.WritePing(true, frame.Data)
		}
		if end, ok := frame.(interface{ StreamEnded() bool }); ok && end.StreamEnded() {
			on(fr, frame.Header().StreamID)
		}
	}
}

// unsized hides the length of a body.
type unsized struct{ io.Reader }

// A request that is sent twice has one audit event with its whole body, whether or not
// the body was kept to be sent again.
func TestAuditOfRetriedRequests(t *testing.T) {
	good := httptest.NewUnstartedServer(nil)
	var got atomic.Pointer[string]
	good.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got.Store(new(string(body)))
		w.WriteHeader(http.StatusCreated)
	})
	good.EnableHTTP2 = true
	good.StartTLS()
	t.Cleanup(good.Close)
	small, large := `{"metadata":{"name":"x"}}`, `{"a":"`+strings.Repeat("x", 200_000)+`"}`
	for name, c := range map[string]struct {
		refuse func(net.Conn)
		body   string
		reader func(string) io.Reader
	}{
		"kept, hung up on":         {func(net.Conn) {}, small, func(s string) io.Reader { return strings.NewReader(s) }},
		"kept, sent and refused":   {refuseStreams, small, func(s string) io.Reader { return strings.NewReader(s) }},
		"large, hung up on":        {func(net.Conn) {}, large, func(s string) io.Reader { return strings.NewReader(s) }},
		"of no length, hung up on": {func(net.Conn) {}, small, func(s string) io.Reader { return unsized{strings.NewReader(s)} }},
	} {
		t.Run(name, func(t *testing.T) {
			bad := startRefusing(t, good.TLS, c.refuse)
			change, events := auditing(t, "Request")
			front := startChain(t, nil, change, twoEndpoints(t, bad.Addr().String(), good.Listener.Addr().String()))
			res, err := front.Client().Post(front.URL+"/apis/g.example.com/v1/things", "application/json", c.reader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if n := bad.refused.Load(); res.StatusCode != http.StatusCreated || n == 0 {
				t.Fatalf("%d; the first endpoint was asked %d times", res.StatusCode, n)
			}
			if body := got.Swap(nil); body == nil || *body != c.body {
				t.Errorf("the second endpoint did not get the body as it was sent")
			}
			until(t, "the event is written", func() bool { return events() != "" })
			if got := events(); strings.Count(got, "create ") != 1 || !strings.HasSuffix(got, ` `+c.body) {
				t.Errorf("got %.300s (%d bytes)", got, len(got))
			}
		})
	}
}

// twoEndpoints has a proxy with two endpoints, of which the first gets the first
// request.
func twoEndpoints(t *testing.T, addresses ...string) func(*filter.Config) {
	policy := upstream.NewPolicy(&backend.Spec{Balance: backend.RoundRobin})
	policy.Timeouts.Connect, policy.PanicThresholdPercent = time.Minute, 0
	up := NewUpstream(upstream.Config{
		Base: &url.URL{Scheme: "https", Host: "example.com"}, Endpoints: upstream.At(addresses...), Policy: policy,
		Trust: upstream.Trust{Insecure: true},
	}, NewMaker(slog.New(slog.DiscardHandler)))
	t.Cleanup(up.Close)
	rt := &Route{Name: "v1.", Upstream: up, Condition: apiservice.Passed(), traffic: NewTraffic().route(routeName{"v1.", "test"})}
	return func(c *filter.Config) {
		c.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (&Proxy{}).Send(w, r, rt) })
	}
}
