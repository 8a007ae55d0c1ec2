package upstream

import (
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"portico/apiservice/backend"
)

// countingListener counts connections.
type countingListener struct {
	net.Listener
	accepted atomic.Int32
}

func (l *countingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.accepted.Add(1)
	}
	return conn, err
}

// Watches that start together share connections from the first, and no connection gets
// more than its server permits: it would refuse them, and retries take of the budget,
// of which there is none here.
func TestWatchesShareConnections(t *testing.T) {
	for _, c := range []struct{ watches, streams int }{{300, 100}, {60, 2}} {
		t.Run(fmt.Sprint(c.streams, " at a time"), func(t *testing.T) { watchTogether(t, c.watches, c.streams) })
	}
}

func watchTogether(t *testing.T, watches, streams int) {
	end := make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-end
	}))
	counted := &countingListener{Listener: server.Listener}
	server.Listener, server.EnableHTTP2 = counted, true
	server.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: streams}
	server.StartTLS()
	t.Cleanup(server.Close)
	policy := turns()
	policy.Retries.BudgetPercent, policy.Retries.MinPerSecond = 0, 0
	u := over(t, policy, At(server.Listener.Addr().String())...)
	var all sync.WaitGroup
	for range watches {
		all.Go(func() {
			req, _ := http.NewRequestWithContext(t.Context(), "GET", "https://example.com"+watchPath, nil)
			res, err := u.Long().RoundTrip(req)
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { res.Body.Close() })
		})
	}
	all.Wait()
	close(end)
	if n := int(counted.accepted.Load()); n < watches/streams || n > 5*watches/streams {
		t.Errorf("%d connections for %d watches, %d on each", n, watches, streams)
	}
}

// Without a configured server name, the certificate must be valid for the host of the
// URL.
func TestServerNameOfURL(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	for host, want := range map[string]bool{"example.com": true, "elsewhere.test": false} {
		base := &url.URL{Scheme: "https", Host: host + ":443"}
		up := New(Config{
			Base: base, Endpoints: At(server.Listener.Addr().String()), Trust: Trust{Roots: fixed(pool)}, Policy: NewPolicy(&backend.Spec{}),
		})
		for _, path := range []string{"/apis", "/apis?watch=true"} { // over HTTP/1.1 and HTTP/2
			req, err := http.NewRequest("GET", base.String()+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			res, err := up.RoundTrip(req)
			if (err == nil) != want {
				t.Errorf("%s%s: %v", host, path, err)
			}
			if err == nil {
				res.Body.Close()
			}
		}
		up.Close()
	}
}
