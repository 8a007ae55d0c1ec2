package serve

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"path/filepath"
	"testing"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// pki is the certificates of a server and of a client. Each is its own authority.
type pki struct {
	dir            string // of the server's tls.crt and tls.key
	server, client tls.Certificate
}

const serverName = "server"

func newPKI(t *testing.T) *pki {
	t.Helper()
	dir := t.TempDir()
	return &pki{
		dir: dir, server: selfSigned(t, dir, cert.Config{CommonName: serverName}),
		client: selfSigned(t, t.TempDir(), cert.Config{CommonName: "jane", Organization: []string{"dev"}}),
	}
}

// selfSigned makes a certificate and its key in the files tls.crt and tls.key of a folder.
func selfSigned(t *testing.T, dir string, cfg cert.Config) tls.Certificate {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	text, _, err := keyutil.LoadOrGenerateKeyFile(keyFile)
	must(err)
	key, err := keyutil.ParsePrivateKeyPEM(text)
	must(err)
	leaf, err := cert.NewSelfSignedCACert(cfg, key.(crypto.Signer))
	must(err)
	text, err = cert.EncodeCertificates(leaf)
	must(err)
	must(cert.WriteCert(certFile, text))
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	must(err)
	return pair
}

func poolOf(c tls.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(c.Leaf)
	return pool
}

// listen returns an address on loopback with the server's certificate.
func (p *pki) listen() ListenAddress {
	pool := poolOf(p.client)
	return ListenAddress{
		Address: "127.0.0.1:0", TLS: TLS{CertFile: filepath.Join(p.dir, "tls.crt"), KeyFile: filepath.Join(p.dir, "tls.key")},
		ClientCAs: func() *x509.CertPool { return pool },
	}
}

// tlsConfig returns the configuration of a client with the certificates.
func (p *pki) tlsConfig(certs ...tls.Certificate) *tls.Config {
	return &tls.Config{RootCAs: poolOf(p.server), ServerName: serverName, Certificates: certs}
}

// httpClient returns a client of one protocol with the certificates.
func (p *pki) httpClient(t *testing.T, h2 bool, certs ...tls.Certificate) *http.Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: p.tlsConfig(certs...), Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(!h2)
	transport.Protocols.SetHTTP2(h2)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}
