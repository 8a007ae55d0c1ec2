package transport

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

const (
	shortPath = "/apis/g.example.com/v1/things"
	watchPath = shortPath + "?watch=true"
)

// counted is an Endpoint that counts how often a connection broke.
type counted struct {
	*Endpoint
	broken atomic.Int32
}

// newCounted returns an Endpoint at an address.
func newCounted(t testing.TB, network, address string, trust Trust) *counted {
	t.Helper()
	scheme := "https"
	if trust.Plain {
		scheme = "http"
	}
	c := &counted{}
	c.Endpoint = New(Config{
		Network: network, Address: address, Base: &url.URL{Scheme: scheme, Host: "example.com"}, Broken: func() { c.broken.Add(1) },
		Timeouts: func() Timeouts {
			return Timeouts{Connect: 20 * time.Second, Idle: 90 * time.Second, MaxAge: 10 * time.Minute}
		},
	}, trust)
	t.Cleanup(c.Renew)
	return c
}

// get sends a GET: over HTTP/2 if it is a watch, else over HTTP/1.1.
func (c *counted) get(t testing.TB, path string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", c.Base().String()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	protocol := HTTP1
	if path == watchPath {
		protocol = HTTP2
	}
	res, _, err := c.RoundTrip(req, protocol)
	if err == nil {
		t.Cleanup(func() { res.Body.Close() })
	}
	return res, err
}

func (c *counted) http1(t testing.TB) *http1Pool {
	t.Helper()
	g, err := c.generation()
	if err != nil {
		t.Fatal(err)
	}
	return g.http1
}

// waiting is how many requests wait for an HTTP/1.1 connection, and how many dials are
// in progress.
func (c *counted) waiting(t testing.TB) (waiting, dialing int) {
	p := c.http1(t)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queue.waiters.Len(), p.queue.dialing
}

func trustOf(s *httptest.Server) Trust {
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return Trust{Roots: func() *x509.CertPool { return pool }, ServerName: "example.com"}
}

// selfSigned makes a certificate.
func selfSigned(t *testing.T, name string) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"example.com"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err2 := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	leaf, err3 := x509.ParseCertificate(der)
	if err := errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// Renewed certificates and authorities hold for the next request: connections made with
// the old ones are not used for it. A certificate that the server refuses is no answer.
func TestRenewedCredentials(t *testing.T) {
	t.Parallel()
	var shown, carried atomic.Pointer[tls.Certificate]
	var roots, accepted atomic.Pointer[x509.CertPool] // accepted: nil are all
	show := func(name string) {
		shown.Store(selfSigned(t, name))
		pool := x509.NewCertPool()
		pool.AddCert(shown.Load().Leaf)
		roots.Store(pool)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Client", r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		cfg := &tls.Config{Certificates: []tls.Certificate{*shown.Load()}, NextProtos: []string{"h2", "http/1.1"}, ClientAuth: tls.RequestClientCert}
		if cfg.ClientCAs = accepted.Load(); cfg.ClientCAs != nil {
			cfg.ClientAuth = tls.RequireAndVerifyClientCert
		}
		return cfg, nil
	}}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	e := newCounted(t, "tcp", server.Listener.Addr().String(), Trust{
		Roots: roots.Load, ServerName: "example.com",
		Certificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return carried.Load(), nil },
	})
	good, pool := selfSigned(t, "gateway 4"), x509.NewCertPool()
	pool.AddCert(good.Leaf)
	for _, step := range []struct {
		change func()
		want   string // "": no answer
	}{
		{func() { show("server 1"); carried.Store(selfSigned(t, "gateway 1")) }, "gateway 1"},
		{func() { carried.Store(selfSigned(t, "gateway 2")) }, "gateway 2"},
		{func() { show("server 2") }, "gateway 2"},
		{func() { accepted.Store(pool); carried.Store(selfSigned(t, "gateway 3")) }, ""},
		{func() { carried.Store(good) }, "gateway 4"},
		{func() { roots.Store(x509.NewCertPool()) }, ""},
	} {
		step.change()
		for _, path := range []string{shortPath, watchPath} { // over HTTP/1.1 and HTTP/2
			res, err := e.get(t, path)
			if (err == nil) != (step.want != "") || err == nil && res.Header.Get("X-Client") != step.want {
				t.Errorf("%s: got %v, %v; want the client %q", path, res, err, step.want)
			}
		}
	}
}

// That a server does not speak HTTP/2 is still known after the credentials change.
func TestReplacedConnectionsDoNotMultiplex(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.HandlerFunc(echo))
	t.Cleanup(server.Close)
	trust := trustOf(server)
	certificate := &server.TLS.Certificates[0]
	trust.Certificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificate, nil }
	e := newCounted(t, "tcp", server.Listener.Addr().String(), trust)
	if _, err := e.get(t, watchPath); err != nil {
		t.Fatal(err)
	}
	before := e.current.Load()
	certificate = new(tls.Certificate)
	if g, err := e.generation(); err != nil || g == before || e.Multiplexes() {
		t.Errorf("replaced %v, multiplexes %v, %v", g != before, e.Multiplexes(), err)
	}
}

// A PING finds an HTTP/2 connection to a server that is silent; its watches end, and the next
// one uses another connection.
func TestSilentConnection(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(nil)
	server.EnableHTTP2 = true
	server.Config.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){
		"h2": func(_ *http.Server, conn *tls.Conn, _ http.Handler) {
			_, _ = io.ReadFull(conn, make([]byte, len(http2.ClientPreface)))
			fr := http2.NewFramer(conn, conn)
			_, _ = fr.WriteSettings(), fr.WriteSettingsAck()
			for {
				frame, err := fr.ReadFrame()
				if err != nil {
					return
				}
				if _, ok := frame.(*http2.HeadersFrame); ok {
					const status200 = 0x88 // RFC 7541, appendix A
					_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: frame.Header().StreamID, BlockFragment: []byte{status200}, EndHeaders: true})
					<-t.Context().Done()
				}
			}
		},
	}
	server.StartTLS()
	t.Cleanup(server.CloseClientConnections)
	e := newCounted(t, "tcp", server.Listener.Addr().String(), trustOf(server))
	e.adjust = func(h2 *http.Transport) {
		if h2.HTTP2.SendPingTimeout == 0 || h2.HTTP2.PingTimeout == 0 {
			t.Error("PINGs are disabled")
		}
		h2.HTTP2.SendPingTimeout, h2.HTTP2.PingTimeout = 50*time.Millisecond, time.Second
	}
	for range 2 {
		res, err := e.get(t, watchPath)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(res.Body); err == nil {
			t.Error("the watch ends as if it were complete")
		}
	}
}
