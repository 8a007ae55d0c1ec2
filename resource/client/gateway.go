package client

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"portico/resource/authn"
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

// Transport returns a transport that authenticates both sides, and connects when it is used.
func (g Gateway) Transport() (http.RoundTripper, error) {
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
		// RootCAs is read once. Verifying here, by the same rules, uses a renewed file from
		// the next handshake on.
		config.InsecureSkipVerify = true
		config.VerifyConnection = func(state tls.ConnectionState) error { return verify(state, ca.Pool(), base.Hostname()) }
	}
	if g.CertFile != "" {
		pair, err := authn.NewKeyPair(g.CertFile, g.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("load certificate for the gateway: %w", err)
		}
		config.GetClientCertificate = pair.GetClientCertificate
	}
	return &http.Transport{
		TLSClientConfig: config, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 5 * time.Second,
		ResponseHeaderTimeout: 60 * time.Second, IdleConnTimeout: 90 * time.Second, MaxIdleConnsPerHost: 4,
	}, nil
}

// verify checks a server's certificate against roots and the name of the server.
func verify(state tls.ConnectionState, roots *x509.CertPool, host string) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("the gateway sent no certificate")
	}
	opts := x509.VerifyOptions{Roots: roots, DNSName: host, Intermediates: x509.NewCertPool()}
	for _, cert := range state.PeerCertificates[1:] {
		opts.Intermediates.AddCert(cert)
	}
	_, err := state.PeerCertificates[0].Verify(opts)
	return err
}
