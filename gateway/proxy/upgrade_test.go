package proxy

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/apiservice/backend"
	"portico/gateway/upstream"
	"portico/internal/testing/await"
	"portico/resource/authn"
	"portico/resource/serve"
	"portico/resource/serve/filter"
	"portico/resource/serve/metrics"
)

// upgradeRoute is a gateway on real listeners, with a limit on requests, before a server
// that speaks WebSocket: an aggregated one at a connect subresource, and a REST server
// at any path.
type upgradeRoute struct {
	name, path string
	server     string // of the gateway
	metrics    *metrics.Metrics
	up         *Upstream
	ended      chan error // how the server's end of each connection ended
	shutdown   func()     // of the gateway
}

const upgradeLimit = 250 * time.Millisecond

func upgradeRoutes(t *testing.T) (routes []*upgradeRoute) {
	t.Helper()
	for name, rest := range map[string]*REST{"aggregated server": nil, "REST server": {root: shopRoot}} {
		w := &upgradeRoute{name: name, metrics: metrics.New(), ended: make(chan error, 8)}
		behind := websocket.Handler(func(conn *websocket.Conn) {
			var text string
			err := websocket.Message.Receive(conn, &text)
			for ; err == nil && text != "bye"; err = websocket.Message.Receive(conn, &text) {
				_ = websocket.Message.Send(conn, text)
			}
			w.ended <- err
		})
		if rest == nil {
			server, trust := startTLS(t, behind.ServeHTTP)
			w.path, w.up = "/apis/vms.example.com/v1/namespaces/a/vms/b/console", upstreamTo(t, trust, []string{server.Listener.Addr().String()})
		} else {
			w.path, w.up = shopRoot+"/tills/1/live", upstreamOnSocket(t, behind)
		}
		w.serve(t, rest)
		routes = append(routes, w)
	}
	return routes
}

// serve starts the gateway.
func (w *upgradeRoute) serve(t *testing.T, rest *REST) {
	t.Helper()
	rt := routeTo(w.up)
	rt.REST = rest
	w.metrics.Registry().MustRegister(rt.traffic.Metrics()...)
	w.server = filepath.Join(t.TempDir(), "g")
	chain, err := filter.New(filter.Config{
		Authenticator: janeAuthenticator{}, Logger: slog.New(slog.DiscardHandler), Handler: along(rt),
		Metrics: w.metrics, RequestTimeout: upgradeLimit, MaxInFlight: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	server, err := serve.New(serve.Config{
		Listen: []serve.ListenAddress{{Address: "unix://" + w.server}}, Chain: chain, Logger: slog.New(slog.DiscardHandler), ShutdownTimeout: time.Hour,
	})
	if err == nil {
		err = server.Listen()
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	w.shutdown = func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
		done <- nil
	}
	t.Cleanup(w.shutdown)
}

// open opens a WebSocket through the gateway: on a busy machine it may take several
// attempts until one is answered within the limit.
func (w *upgradeRoute) open(t *testing.T) *websocket.Conn {
	t.Helper()
	config, err := websocket.NewConfig("ws://gateway"+w.path, "http://gateway")
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		raw, err := net.Dial("unix", w.server)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { raw.Close() })
		conn, err := websocket.NewClient(config, raw)
		if err == nil {
			return conn
		}
		t.Log(err)
	}
	t.Fatal("no connection is answered")
	return nil
}

func echoes(t *testing.T, conn *websocket.Conn) {
	t.Helper()
	var got string
	if err := websocket.Message.Send(conn, "hello"); err != nil {
		t.Fatal(err)
	}
	if err := websocket.Message.Receive(conn, &got); err != nil || got != "hello" {
		t.Fatalf("got %q, %v", got, err)
	}
}

// free waits until the gateway has no request in progress.
func (w *upgradeRoute) free(t *testing.T) {
	t.Helper()
	await.Until(t, "nothing is in progress", func() bool {
		for key, n := range gathered(t, w.metrics.Registry()) {
			open := strings.HasPrefix(key, "portico_upstream_longrunning_requests") || strings.HasPrefix(key, "apiserver_current_inflight_requests")
			if open && n != 0 {
				return false
			}
		}
		s := w.up.Status()
		return s.Active == 0 && s.Endpoints[0].Active == 0
	})
}

// A connection that has left HTTP outlasts the deadline of requests, holds no slot, and
// releases everything, whichever side ends it.
func TestUpgradedConnections(t *testing.T) {
	t.Parallel()
	for _, w := range upgradeRoutes(t) {
		t.Run(w.name, func(t *testing.T) {
			policy := upstream.NewPolicy(&backend.Spec{})
			policy.Timeouts.Connect, policy.Limits.Concurrent, policy.Limits.Queue = time.Minute, 1, 0
			w.up.SetPolicy(policy)
			conn := w.open(t)
			echoes(t, conn)
			<-time.After(2 * upgradeLimit)
			echoes(t, conn)
			other := w.open(t) // there is a slot for it
			echoes(t, other)

			conn.Close()
			if err := <-w.ended; err != io.EOF {
				t.Errorf("the client ended it; the server's end had %v", err)
			}
			var none string
			if err := websocket.Message.Send(other, "bye"); err != nil {
				t.Error(err)
			}
			if err := websocket.Message.Receive(other, &none); !errors.Is(err, io.EOF) {
				t.Errorf("the server ended it; the client got %q, %v", none, err)
			}
			<-w.ended
			other.Close()
			w.free(t)

			last := w.open(t)
			echoes(t, last)
			w.shutdown()
			<-w.ended
			if err := websocket.Message.Receive(last, &none); err == nil {
				t.Error("the gateway has shut down, and the connection goes on")
			}
			w.free(t)
		})
	}
}

// A request for another protocol is sent, as any other, only to a server that is verified, over a connection of the dialer of its Backend.
func TestServerOfUpgradesIsVerified(t *testing.T) {
	t.Parallel()
	server, trust := startTLS(t, func(w http.ResponseWriter, r *http.Request) {
		websocket.Handler(func(conn *websocket.Conn) {
			var text string
			if websocket.Message.Receive(conn, &text) == nil {
				_ = websocket.Message.Send(conn, text+" "+r.Header.Get("X-Remote-User")+" "+r.Header.Get("X-Remote-Uid"))
			}
		}).ServeHTTP(w, r)
	})
	var dialed atomic.Int32
	direct := new(net.Dialer).DialContext
	for name, c := range map[string]struct {
		change func(*upstream.Trust)
		ok     bool
		dials  bool // the dialer is used
	}{
		"its name and authority":     {func(*upstream.Trust) {}, true, false},
		"another name":               {func(t *upstream.Trust) { t.ServerName = "other.example.org" }, false, false},
		"another authority":          {func(t *upstream.Trust) { t.Roots = x509.NewCertPool }, false, false},
		"another name, not verified": {func(t *upstream.Trust) { t.ServerName, t.Insecure = "other.example.org", true }, true, false},
		"through a dialer": {func(t *upstream.Trust) {
			t.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				dialed.Add(1)
				return direct(ctx, network, address)
			}
		}, true, true},
		"through one that fails": {func(t *upstream.Trust) {
			t.Dial = func(context.Context, string, string) (net.Conn, error) {
				dialed.Add(1)
				return nil, errors.New("no tunnel")
			}
		}, false, true},
	} {
		changed := trust
		c.change(&changed)
		dialed.Store(0)
		f := frontOf(t, changed, server.Listener.Addr().String())
		if !c.ok {
			for path, header := range map[string]http.Header{shortPath: nil, watchPath: nil, execPath: {"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}} {
				res := f.do(t, "GET", path, nil, header)
				if s := statusOf(t, res); res.StatusCode != 503 || !strings.Contains(s.Message, "error trying to reach service") {
					t.Errorf("%s: %s: %d %q", name, path, res.StatusCode, s.Message)
				}
			}
		} else if conn, err := websocket.Dial("ws://"+f.Listener.Addr().String()+execPath, "", f.URL); err != nil {
			t.Errorf("%s: %v", name, err)
		} else {
			var got string
			if err := errors.Join(websocket.Message.Send(conn, "hello"), websocket.Message.Receive(conn, &got)); err != nil || got != "hello alice 42" {
				t.Errorf("%s: got %q, %v", name, got, err)
			}
			conn.Close()
		}
		if n := dialed.Load(); n > 0 != c.dials {
			t.Errorf("%s: dialed %d times", name, n)
		}
	}
}

// writePair writes a key and its self-signed certificate for clients to files, and returns the certificate.
func writePair(t *testing.T, certFile, keyFile, name string) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err2 := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	private, err3 := x509.MarshalPKCS8PrivateKey(key)
	cert, err4 := x509.ParseCertificate(der)
	err5 := os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600)
	err6 := os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600)
	if err := errors.Join(err, err2, err3, err4, err5, err6); err != nil {
		t.Fatal(err)
	}
	return cert
}

// A client certificate of the gateway that the server refuses is 503. Once the files have another one, the
// next request shows it.
func TestClientCertificateIsReadAgain(t *testing.T) {
	t.Parallel()
	certFile, keyFile := filepath.Join(t.TempDir(), "tls.crt"), filepath.Join(t.TempDir(), "tls.key")
	accepted := writePair(t, certFile, keyFile, "accepted")
	good, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	writePair(t, certFile, keyFile, "refused")
	pair, err := authn.NewKeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Shown", r.TLS.PeerCertificates[0].Subject.CommonName)
		w.WriteHeader(http.StatusNotFound) // no upgrade
	}))
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: x509.NewCertPool()}
	server.TLS.ClientCAs.AddCert(accepted)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	trust := trustOf(server)
	trust.Certificate = pair.GetClientCertificate
	f := frontOf(t, trust, server.Listener.Addr().String())
	paths := map[string]http.Header{shortPath: nil, watchPath: nil, execPath: {"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}}
	for path, header := range paths {
		res := f.do(t, "GET", path, nil, header)
		if s := statusOf(t, res); res.StatusCode != 503 || s.Reason != metav1.StatusReasonServiceUnavailable {
			t.Errorf("%s: refused: %d %v", path, res.StatusCode, s)
		}
	}
	private, err := x509.MarshalPKCS8PrivateKey(good.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: accepted.Raw}, keyFile: {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	authn.Reload()
	for path, header := range paths {
		if res := f.do(t, "GET", path, nil, header); res.StatusCode != 404 || res.Header.Get("X-Shown") != "accepted" {
			t.Errorf("%s: %d, the server has got the certificate of %q", path, res.StatusCode, res.Header.Get("X-Shown"))
		}
	}
}

// fromPipe is a writer on one end of a pipe.
type fromPipe struct {
	http.ResponseWriter
	conn net.Conn
}

func (p fromPipe) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return p.conn, bufio.NewReadWriter(bufio.NewReader(p.conn), bufio.NewWriter(p.conn)), nil
}

// After the server has ended its direction, the client's connection is closed within
// HalfOpen.
func TestHalfOpenClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, mine := net.Pipe()
		h := upgradeHandler{http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			if err := conn.(interface{ CloseWrite() error }).CloseWrite(); !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("got %v", err)
			}
		})}
		h.ServeHTTP(fromPipe{httptest.NewRecorder(), mine}, nil)
		began := time.Now()
		if _, err := client.Read(make([]byte, 1)); err != io.EOF || time.Since(began) != upstream.HalfOpen {
			t.Errorf("got %v after %v", err, time.Since(began))
		}
	})
}
