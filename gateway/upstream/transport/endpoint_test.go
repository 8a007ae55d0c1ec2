package transport

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"
	"time"
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
	t.Cleanup(c.Close)
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

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not within 20s: " + what)
		}
	}
}

func fixed(pool *x509.CertPool) func() *x509.CertPool { return func() *x509.CertPool { return pool } }

func trustOf(s *httptest.Server) Trust {
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return Trust{Roots: fixed(pool), ServerName: "example.com"}
}

// selfSigned makes a certificate.
func selfSigned(t *testing.T, name string) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"example.com"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// careful is a TLS server whose certificate can be changed, with the trust of the
// gateway.
type careful struct {
	shows   atomic.Pointer[tls.Certificate]
	sees    atomic.Pointer[string] // common name of the client of the last request
	trusts  atomic.Pointer[x509.CertPool]
	carries atomic.Pointer[tls.Certificate]
}

func startCareful(t *testing.T) (*careful, *counted) {
	t.Helper()
	c := &careful{}
	c.show(selfSigned(t, "server"))
	c.carries.Store(selfSigned(t, "gateway 1"))
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var name string
		if len(r.TLS.PeerCertificates) > 0 {
			name = r.TLS.PeerCertificates[0].Subject.CommonName
		}
		c.sees.Store(&name)
	}))
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{
			Certificates: []tls.Certificate{*c.shows.Load()}, NextProtos: []string{"h2", "http/1.1"}, ClientAuth: tls.RequestClientCert,
		}, nil
	}}
	server.StartTLS()
	t.Cleanup(server.Close)
	return c, newCounted(t, "tcp", server.Listener.Addr().String(), Trust{
		Roots: c.trusts.Load, ServerName: "example.com",
		Certificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c.carries.Load(), nil },
	})
}

// show changes the server's certificate, and the roots of the gateway to it.
func (c *careful) show(certificate *tls.Certificate) {
	pool := x509.NewCertPool()
	pool.AddCert(certificate.Leaf)
	c.shows.Store(certificate)
	c.trusts.Store(pool)
}

func (c *careful) want(t *testing.T, f *counted, reached bool, client string) {
	t.Helper()
	for _, path := range []string{shortPath, watchPath} { // HTTP/1.1 and HTTP/2
		if _, err := f.get(t, path); (err == nil) != reached || reached && *c.sees.Load() != client {
			t.Errorf("%s: %v as %q, want %v as %q", path, err, *c.sees.Load(), reached, client)
		}
	}
}

// Renewed certificates and authorities hold for the next request: connections made with
// the old ones are not used for it.
func TestRenewedCredentials(t *testing.T) {
	t.Parallel()
	c, f := startCareful(t)
	c.want(t, f, true, "gateway 1")
	c.carries.Store(selfSigned(t, "gateway 2"))
	c.want(t, f, true, "gateway 2")
	c.show(selfSigned(t, "server 2"))
	c.want(t, f, true, "gateway 2")
	c.trusts.Store(x509.NewCertPool()) // without authorities
	c.want(t, f, false, "")
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

// silent forwards connections until it holds back everything.
type silent struct {
	net.Listener
	held atomic.Pointer[chan struct{}]
}

func startSilent(t *testing.T, to string) *silent {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &silent{Listener: l}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			here, err := l.Accept()
			if err != nil {
				return
			}
			there, err := net.Dial("tcp", to)
			if err != nil {
				here.Close()
				continue
			}
			hold := make(chan struct{})
			s.held.Store(&hold)
			copying := func(to, from net.Conn) {
				defer to.Close()
				b := make([]byte, 4096)
				for {
					n, err := from.Read(b)
					select {
					case <-hold:
						<-t.Context().Done() // as packets do that are dropped
						return
					default:
					}
					if _, werr := to.Write(b[:n]); err != nil || werr != nil {
						return
					}
				}
			}
			go copying(here, there)
			go copying(there, here)
		}
	}()
	return s
}

// A PING finds an HTTP/2 connection whose server is silent; its watches end, and the
// next uses another connection.
func TestSilentConnection(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.CloseClientConnections)
	between := startSilent(t, server.Listener.Addr().String())
	f := newCounted(t, "tcp", between.Addr().String(), trustOf(server))
	f.adjust = func(h2 *http.Transport) {
		if h2.HTTP2.SendPingTimeout == 0 || h2.HTTP2.PingTimeout == 0 {
			t.Error("PINGs are disabled")
		}
		h2.HTTP2.SendPingTimeout, h2.HTTP2.PingTimeout = 50*time.Millisecond, 200*time.Millisecond
	}
	res, err := f.get(t, watchPath)
	if err != nil {
		t.Fatal(err)
	}
	close(*between.held.Load())
	if _, err := io.ReadAll(res.Body); err == nil {
		t.Error("the watch ended as if all had been said")
	}
	if _, err := f.get(t, watchPath); err != nil {
		t.Errorf("the next one: %v", err)
	}
}
