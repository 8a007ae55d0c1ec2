package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
)

// trust says how a server is to be recognised and what is shown to it.
type trust struct {
	plain bool // no TLS: a unix socket in a private folder
	// roots are read at every handshake, like certificate, so that renewed ones
	// are used at once; nil, or a nil pool: the system's.
	roots      func() *x509.CertPool
	insecure   bool // spec.insecureSkipTLSVerify
	serverName string
	// certificate is the front-proxy client certificate; nil shows none.
	certificate func(*tls.CertificateRequestInfo) (*tls.Certificate, error)
}

// credentials are what trust said at one time. They are the same for as long as
// the files they come from are.
type credentials struct {
	roots       *x509.CertPool
	certificate *tls.Certificate // nil: none is shown
}

// now returns what holds at present.
func (t trust) now() (c credentials, err error) {
	if t.roots != nil {
		c.roots = t.roots()
	}
	if t.certificate != nil {
		c.certificate, err = t.certificate(nil)
	}
	return c, err
}

// handshake makes a TLS connection of conn, or closes it. asked reports whether
// the server wanted to see a certificate.
func (t trust) handshake(ctx context.Context, conn net.Conn, c credentials, protocols []string) (_ *tls.Conn, asked bool, err error) {
	secured := tls.Client(conn, &tls.Config{
		RootCAs: c.roots, InsecureSkipVerify: t.insecure, ServerName: t.serverName, NextProtos: protocols, MinVersion: tls.VersionTLS12,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			asked = true
			if c.certificate == nil {
				return new(tls.Certificate), nil
			}
			return c.certificate, nil
		},
	})
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, asked, err
	}
	return secured, asked, nil
}

// parsePool makes a pool of PEM certificates; empty PEM is nil, the system's.
func parsePool(pem []byte) (*x509.CertPool, error) {
	if len(pem) == 0 {
		return nil, nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("parse caBundle: it holds no certificate")
	}
	return pool, nil
}
