package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
)

// Trust says how a server is reached and authenticated, and how the gateway authenticates itself.
type Trust struct {
	// Dial connects to host:port; nil: directly.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Plain is a connection without TLS, for instance to a unix socket in a private
	// folder.
	Plain bool
	// PriorKnowledge: without TLS the server is expected to speak HTTP/2 (RFC 9113, 3.3).
	// One that answers with HTTP/1.1 gets that.
	PriorKnowledge bool
	// Roots returns the authorities that the server's certificate is verified with; nil,
	// or a nil pool, are the system's. It is called for every request, as Certificate is, so that
	// renewed files are used at once.
	Roots func() *x509.CertPool
	// Insecure skips the verification.
	Insecure   bool
	ServerName string
	// Certificate returns the front-proxy client certificate; nil shows none.
	Certificate func(*tls.CertificateRequestInfo) (*tls.Certificate, error)
}

// credentials are what a Trust returns at one time. They are equal for as long as the
// files that they come from do not change.
type credentials struct {
	roots       *x509.CertPool
	certificate *tls.Certificate // nil: none is shown
}

// now returns the credentials of the moment.
func (t Trust) now() (c credentials, err error) {
	if t.Roots != nil {
		c.roots = t.Roots()
	}
	if t.Certificate != nil {
		c.certificate, err = t.Certificate(nil)
	}
	return c, err
}

// handshake makes the TLS handshake on conn, and closes it on failure.
func (t Trust) handshake(ctx context.Context, conn net.Conn, c credentials, protocols []string) (*tls.Conn, error) {
	secured := tls.Client(conn, &tls.Config{
		RootCAs: c.roots, InsecureSkipVerify: t.Insecure, ServerName: t.ServerName, NextProtos: protocols, MinVersion: tls.VersionTLS12,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if c.certificate == nil {
				return new(tls.Certificate), nil
			}
			return c.certificate, nil
		},
	})
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return secured, nil
}

// ParsePool returns the pool of some PEM certificates; nil, the system's, for none.
func ParsePool(pem []byte) (*x509.CertPool, error) {
	if len(pem) == 0 {
		return nil, nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("parse caBundle: it holds no certificate")
	}
	return pool, nil
}
