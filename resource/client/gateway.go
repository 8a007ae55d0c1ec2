package client

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"portico/resource/authn"
	"portico/resource/egress"
)

// Gateway is how a backend connects to the gateway as its client. Files are read again when
// they change.
type Gateway struct {
	// URL is https://host:port.
	URL string
	// CAFile has the CAs of the gateway's certificate, by default the system's. CertFile
	// and KeyFile are the client certificate.
	CAFile, CertFile, KeyFile string
}

// Transport returns a transport that authenticates both sides, connects when it is used, and fails on redirects.
func (g Gateway) Transport() (http.RoundTripper, error) {
	transport, err := g.transport()
	if err != nil {
		return nil, err
	}
	return egress.RefuseRedirects(transport), nil
}

func (g Gateway) transport() (http.RoundTripper, error) {
	base, err := url.Parse(g.URL)
	if err != nil || base.Scheme != "https" || base.Hostname() == "" {
		return nil, fmt.Errorf("gateway URL %q must be https://host:port", g.URL)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if g.CAFile != "" {
		ca, err := authn.NewCAFile(g.CAFile)
		if err != nil {
			return nil, fmt.Errorf("load CA of the gateway: %w", err)
		}
		ca.VerifyServer(config, base.Hostname())
	}
	transport := &http.Transport{
		TLSClientConfig: config, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 5 * time.Second,
		ResponseHeaderTimeout: 60 * time.Second, IdleConnTimeout: 90 * time.Second, MaxIdleConnsPerHost: 4,
	}
	if g.CertFile == "" {
		return transport, nil
	}
	pair, err := authn.NewKeyPair(g.CertFile, g.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("load certificate for the gateway: %w", err)
	}
	return &renewed{pair: pair, transport: transport}, nil
}

// renewed is a transport whose connections are those of the present client certificate: the gateway
// refuses requests on a connection when the certificate of the handshake has ended. Requests in
// progress go on where they are.
type renewed struct {
	pair *authn.KeyPair

	mu        sync.Mutex
	shown     *tls.Certificate // by transport
	transport *http.Transport
}

// RoundTrip implements http.RoundTripper.
func (r *renewed) RoundTrip(req *http.Request) (*http.Response, error) {
	return r.current().RoundTrip(req)
}

func (r *renewed) current() *http.Transport {
	now, _ := r.pair.GetClientCertificate(nil) // it has no errors
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.shown == now {
		return r.transport
	}
	old := r.transport
	r.shown, r.transport = now, old.Clone()
	r.transport.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return now, nil }
	old.CloseIdleConnections()
	return r.transport
}
