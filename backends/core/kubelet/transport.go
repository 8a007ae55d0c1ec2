package kubelet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"portico/resource/authn"
	"portico/resource/egress"
)

const (
	dialTimeout      = 30 * time.Second
	handshakeTimeout = 10 * time.Second
	idleTimeout      = 90 * time.Second
	maxIdlePerHost   = 4
)

// transports makes and keeps the transports to kubelets and to pods. Safe for concurrent use.
type transports struct {
	cert     *authn.KeyPair // nil if kubelets get none
	ca       *authn.CAFile  // nil if certificates are not verified
	allowed  func(netip.Addr) bool
	loopback bool        // Config.AllowLoopback
	dial     egress.Dial // nil connects directly

	mu    sync.Mutex
	cas   *x509.CertPool   // that the transports in made verify kubelets with
	shown *tls.Certificate // that the transports in made present to kubelets
	made  map[transportKind]*http.Transport
}

// transportKind says how connections are made.
type transportKind struct {
	kubelet  bool // with the client certificate
	insecure bool // the certificate of the server is not verified
	proxy    bool // to no loopback address, whatever the flags are
}

var (
	toKubelet           = transportKind{kubelet: true}
	toKubeletUnverified = transportKind{kubelet: true, insecure: true}
	proxyToKubelet      = transportKind{kubelet: true, proxy: true}
	proxyToPod          = transportKind{insecure: true, proxy: true}
)

func newTransports(cfg *Config) (t *transports, err error) {
	t = &transports{allowed: cfg.allowed, loopback: cfg.AllowLoopback, dial: cfg.Dial, made: map[transportKind]*http.Transport{}}
	if cfg.CAFile != "" {
		if t.ca, err = authn.NewCAFile(cfg.CAFile); err != nil {
			return nil, fmt.Errorf("load CA of kubelets: %w", err)
		}
	}
	if (cfg.ClientCertFile == "") != (cfg.ClientKeyFile == "") {
		return nil, errors.New("a client certificate for kubelets needs both its certificate and its key")
	}
	if cfg.ClientCertFile != "" {
		if t.cert, err = authn.NewKeyPair(cfg.ClientCertFile, cfg.ClientKeyFile); err != nil {
			return nil, fmt.Errorf("load client certificate for kubelets: %w", err)
		}
	}
	return t, nil
}

// get returns the transport of a kind. It makes new transports when the CA file or the client
// certificate has changed, because a kubelet may refuse requests on a connection with the former
// certificate.
func (t *transports) get(kind transportKind) *http.Transport {
	t.mu.Lock()
	defer t.mu.Unlock()
	var cas *x509.CertPool
	if t.ca != nil {
		cas = t.ca.Pool()
	}
	var cert *tls.Certificate
	if t.cert != nil {
		cert, _ = t.cert.GetClientCertificate(nil) // never fails
	}
	if cas != t.cas || cert != t.shown {
		for kind, transport := range t.made {
			transport.CloseIdleConnections()
			delete(t.made, kind)
		}
		t.cas, t.shown = cas, cert
	}
	if t.made[kind] == nil {
		t.made[kind] = t.build(kind)
	}
	return t.made[kind]
}

// build makes a transport. It uses no proxy of the environment.
func (t *transports) build(kind transportKind) *http.Transport {
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: t.cas, InsecureSkipVerify: kind.insecure || t.cas == nil}
	if cert := t.shown; kind.kubelet && cert != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	dial := t.dialer(kind)
	return &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return boundConn(ctx, conn), nil
		},
		TLSClientConfig: config, ForceAttemptHTTP2: true, TLSHandshakeTimeout: handshakeTimeout,
		IdleConnTimeout: idleTimeout, MaxIdleConnsPerHost: maxIdlePerHost, DisableCompression: true,
	}
}

// dialer returns what connects for a kind.
func (t *transports) dialer(kind transportKind) egress.Dial {
	if t.dial == nil {
		dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}
		// The name is resolved, and the connection is not made yet.
		dialer.ControlContext = func(_ context.Context, _, address string, _ syscall.RawConn) error {
			at, err := netip.ParseAddrPort(address)
			if err != nil {
				return err
			}
			return t.check(kind, at.Addr())
		}
		return dialer.DialContext
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if at, err := netip.ParseAddrPort(address); err == nil {
			if err := t.check(kind, at.Addr()); err != nil {
				return nil, err
			}
		}
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		return t.dial(ctx, network, address)
	}
}

// check returns an error unless connections of a kind may be made to an address.
func (t *transports) check(kind transportKind, ip netip.Addr) error {
	switch {
	case t.allowed(ip):
		return nil
	case kind.proxy || !ip.Unmap().IsLoopback():
		return errNotAllowed
	case !t.loopback:
		return errLoopback
	}
	return nil
}
