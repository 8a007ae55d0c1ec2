package upstream

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"portico/apiservice/backend"
)

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

// careful is a TLS server whose certificate, and whether it asks for the
// client's, can be changed; and how the gateway trusts it.
type careful struct {
	shows   atomic.Pointer[tls.Certificate]
	asks    atomic.Bool
	sees    atomic.Pointer[string] // common name of the client of the last request
	trusts  atomic.Pointer[x509.CertPool]
	carries atomic.Pointer[tls.Certificate]
	// restart ends all connections, in order.
	restart func()
}

func startCareful(t *testing.T) (*careful, *counted) {
	t.Helper()
	c := &careful{}
	c.show(selfSigned(t, "server"))
	c.carries.Store(selfSigned(t, "gateway 1"))
	c.asks.Store(true)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var name string
		if len(r.TLS.PeerCertificates) > 0 {
			name = r.TLS.PeerCertificates[0].Subject.CommonName
		}
		c.sees.Store(&name)
	}))
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		config := &tls.Config{Certificates: []tls.Certificate{*c.shows.Load()}, NextProtos: []string{"h2", "http/1.1"}}
		if c.asks.Load() {
			config.ClientAuth = tls.RequestClientCert
		}
		return config, nil
	}}
	server.StartTLS()
	t.Cleanup(server.Close)
	c.restart = server.CloseClientConnections
	return c, countedOf(t, server.Listener.Addr().String(), Trust{
		Roots: c.trusts.Load, ServerName: "example.com",
		Certificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c.carries.Load(), nil },
	})
}

// show has the server show a certificate, and the gateway trust no other.
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

// New certificates and authorities are good for the next request: connections
// made with the old ones are not used for it.
func TestRenewedCredentials(t *testing.T) {
	c, f := startCareful(t)
	c.want(t, f, true, "gateway 1")
	c.carries.Store(selfSigned(t, "gateway 2"))
	c.want(t, f, true, "gateway 2")
	c.show(selfSigned(t, "server 2"))
	c.want(t, f, true, "gateway 2")
	c.trusts.Store(x509.NewCertPool()) // nobody is trusted any more
	c.want(t, f, false, "")
}

// A server that begins to ask for certificates gets to see the gateway's.
func TestRenewedAfterUnasked(t *testing.T) {
	c, f := startCareful(t)
	c.asks.Store(false)
	c.want(t, f, true, "")
	c.asks.Store(true)
	g := f.endpoints[0].ways.current.Load()
	if g.unasked.Load() == 0 {
		t.Fatal("nobody noticed that the server did not ask")
	}
	g.unasked.Add(-int64(unaskedLife))
	c.want(t, f, true, "gateway 1")
	before := f.endpoints[0].ways.current.Load()
	c.want(t, f, true, "gateway 1")
	if f.endpoints[0].ways.current.Load() != before || before.unasked.Load() != 0 {
		t.Error("connections on which the server asked are given up")
	}
}

// The time of connections on which the server did not ask doubles each time, up to
// a bound, and begins anew with the server, or once that asks.
func TestUnaskedTimeGrows(t *testing.T) {
	c, f := startCareful(t)
	c.asks.Store(false)
	w := f.endpoints[0].ways
	pass := func(life time.Duration) {
		t.Helper()
		c.want(t, f, true, "")
		g := w.current.Load()
		if got := w.unasked.now(); got != life {
			t.Errorf("the time is %v, want %v", got, life)
		}
		g.unasked.Add(-int64(life - 5*time.Second))
		if c.want(t, f, true, ""); w.current.Load() != g {
			t.Errorf("after less than %v others have taken the place", life)
		}
		g.unasked.Add(-int64(5 * time.Second))
	}
	for _, seconds := range []time.Duration{10, 20, 40, 80, 120, 120} {
		pass(seconds * time.Second)
	}
	pass(maxUnaskedLife)
	for what, begins := range map[string]func(){
		"a failed check":  w.renew,
		"it broke":        w.broke,
		"new credentials": func() { c.carries.Store(selfSigned(t, "gateway 2")) },
	} {
		w.renew()
		c.want(t, f, true, "") // by connections that are not old
		w.unasked.again()
		begins()
		c.want(t, f, true, "")
		if got := w.unasked.now(); got != unaskedLife {
			t.Errorf("%s: the time is %v", what, got)
		}
	}
	w.unasked.again()
	c.asks.Store(true)
	w.current.Load().unasked.Add(-int64(time.Hour))
	c.want(t, f, true, "gateway 2")
	if got := w.unasked.now(); got != unaskedLife {
		t.Errorf("it asks: the time is %v", got)
	}
}

// A server may end all connections while they are idle, and start again before the
// next request: nothing else tells of that.
func TestUnaskedAfterQuietRestart(t *testing.T) {
	c, f := startCareful(t)
	c.asks.Store(false)
	get := func() time.Duration {
		t.Helper()
		if _, err := f.get(t, shortPath); err != nil {
			t.Fatal(err)
		}
		return f.endpoints[0].ways.unasked.now()
	}
	get()
	w := f.endpoints[0].ways
	w.unasked.again()
	c.restart()
	if got := get(); got != unaskedLife {
		t.Errorf("the time is %v", got)
	}
	w.unasked.again()
	w.current.Load().direct.idle[0].since = time.Time{}
	if got := get(); got == unaskedLife {
		t.Error("it begins anew because nobody used a connection for long")
	}
}

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

// Watches that start together share connections from the first, and a server that
// takes few at a time is not sent more before it could say so: it would refuse them,
// and a retry costs of the budget, of which there is none here.
func TestSharedBoundsDials(t *testing.T) {
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
	policy.RetryPercent, policy.RetriesPerSecond = 0, 0
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

// Who waits for a connection that cannot be made fails with it: they do not fail
// one after the other, each in its time.
func TestSharedSharesFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials, hold := 0, make(chan struct{})
		s := &shared{connect: func(context.Context) (*sharedConn, error) {
			dials++
			<-hold
			return nil, io.ErrUnexpectedEOF
		}}
		var all sync.WaitGroup
		var blaming atomic.Int32 // the server, of which one connection failed
		for range 20 {
			all.Go(func() {
				_, _, err := s.take(t.Context())
				var behind *behindError
				if !errors.As(err, &behind) {
					blaming.Add(1)
				}
				if !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := s.take(ctx); err != context.Canceled {
			t.Errorf("a request that is given up: %v", err)
		}
		close(hold)
		all.Wait()
		if dials != 1 || blaming.Load() != 1 {
			t.Errorf("%d dials, %d blame the server", dials, blaming.Load())
		}
	})
}

// silent forwards connections until it is told to hold back everything.
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

// An HTTP/2 connection whose server says nothing any more, not even that it
// ends, is found out; its watches end, and the next goes by another.
func TestSilentConnection(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.CloseClientConnections)
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	between := startSilent(t, server.Listener.Addr().String())
	f := countedOf(t, between.Addr().String(), Trust{Roots: fixed(pool), ServerName: "example.com"})
	f.endpoints[0].ways.change = func(h2 *http.Transport) {
		if h2.HTTP2.SendPingTimeout == 0 || h2.HTTP2.PingTimeout == 0 {
			t.Error("nobody pings")
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

// A server for which no name is configured has to prove that it is whom its URL
// names.
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
		for _, path := range []string{"/apis", "/apis?watch=true"} { // by both ways
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
