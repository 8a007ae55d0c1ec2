package upstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
)

// Trust says how a server is to be recognised and what is shown to it.
type Trust struct {
	Plain bool // no TLS: a unix socket in a private folder
	// PriorKnowledge: without TLS the server is expected to speak HTTP/2 (RFC 9113, 3.3).
	// One that answers as HTTP/1.1 gets HTTP/1.1.
	PriorKnowledge bool
	// Roots are read at every handshake, like Certificate, so that renewed ones
	// are used at once; nil, or a nil pool: the system's.
	Roots      func() *x509.CertPool
	Insecure   bool // whoever answers is trusted
	ServerName string
	// Certificate is the front-proxy client certificate; nil shows none.
	Certificate func(*tls.CertificateRequestInfo) (*tls.Certificate, error)
}

// credentials are what a Trust said at one time. They are the same for as long as
// the files they come from are.
type credentials struct {
	roots       *x509.CertPool
	certificate *tls.Certificate // nil: none is shown
}

// now returns what holds at present.
func (t Trust) now() (c credentials, err error) {
	if t.Roots != nil {
		c.roots = t.Roots()
	}
	if t.Certificate != nil {
		c.certificate, err = t.Certificate(nil)
	}
	return c, err
}

// handshake makes a TLS connection of conn, or closes it. asked reports whether
// the server wanted to see a certificate.
func (t Trust) handshake(ctx context.Context, conn net.Conn, c credentials, protocols []string) (_ *tls.Conn, asked bool, err error) {
	secured := tls.Client(conn, &tls.Config{
		RootCAs: c.roots, InsecureSkipVerify: t.Insecure, ServerName: t.ServerName, NextProtos: protocols, MinVersion: tls.VersionTLS12,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			asked = true
			if c.certificate == nil {
				return new(tls.Certificate), nil
			}
			return c.certificate, nil
		},
	})
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, asked, err
	}
	return secured, asked, nil
}

// ParsePool makes a pool of PEM certificates; empty PEM is nil, the system's.
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
