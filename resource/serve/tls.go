package serve

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/util/validation"

	"portico/resource/authn"
)

// TLS is how a network address serves TLS.
type TLS struct {
	// CertFile and KeyFile are the certificate for all names that SNI does not have. They are read
	// again when they change, as those of SNI are.
	CertFile, KeyFile string
	// SNI are certificates for single names. One that was named for a name is stronger than one
	// that has the name, an exact name stronger than a wildcard, and an earlier one than a later.
	SNI []NamedCertificate
	// MinVersion is the least version of TLS; 0: 1.2.
	MinVersion uint16
	// CipherSuites are those of TLS 1.2 and below; nil: Go's.
	CipherSuites []uint16
	// CurvePreferences are the mechanisms of key exchange; nil: Go's.
	CurvePreferences []tls.CurveID
}

// NamedCertificate is a certificate for some names.
type NamedCertificate struct {
	CertFile, KeyFile string
	// Names are domains, of which the first label may be *, and IP addresses that clients connect to
	// without a name. Empty: the names of the certificate.
	Names []string
}

// warn logs the insecure cipher suites.
func (t *TLS) warn(log *slog.Logger) {
	for _, suite := range tls.InsecureCipherSuites() {
		if slices.Contains(t.CipherSuites, suite.ID) {
			log.Warn(fmt.Sprintf("Use of insecure cipher '%s' detected.", suite.Name))
		}
	}
}

// files returns the files of the certificates, for their expiry.
func (t *TLS) files() []authn.CertificateFile {
	out := []authn.CertificateFile{{Usage: "serving", Path: t.CertFile}}
	for _, named := range t.SNI {
		out = append(out, authn.CertificateFile{Usage: "serving-sni", Path: named.CertFile})
	}
	return out
}

// config asks every client for a certificate and accepts every response: a certificate
// that cannot be verified is a 401 with a reason, not a failed handshake. protocols are those of
// ALPN, the preferred one first.
func (t *TLS) config(clientCAs func() *x509.CertPool, protocols ...string) (*tls.Config, error) {
	certificates, err := t.open()
	if err != nil {
		return nil, err
	}
	base := &tls.Config{
		MinVersion:       max(t.MinVersion, tls.VersionTLS10),
		CipherSuites:     t.CipherSuites,
		CurvePreferences: t.CurvePreferences,
		NextProtos:       protocols,
		GetCertificate:   certificates.choose,
		ClientAuth:       tls.RequestClientCert,
	}
	if t.MinVersion == 0 {
		base.MinVersion = tls.VersionTLS12
	}
	if clientCAs == nil {
		return base, nil
	}
	var last atomic.Pointer[tls.Config] // for the pool that it names
	config := base.Clone()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pool := clientCAs()
		if c := last.Load(); c != nil && c.ClientCAs == pool {
			return c, nil
		}
		c := base.Clone()
		c.ClientCAs = pool
		last.Store(c)
		return c, nil
	}
	return config, nil
}

// certificates chooses the certificate of a handshake. Safe for concurrent use.
type certificates struct {
	fallback *authn.KeyPair
	named    []namedPair
}

type namedPair struct {
	pair  *authn.KeyPair
	names []string
}

// open reads the files.
func (t *TLS) open() (*certificates, error) {
	fallback, err := authn.NewKeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, err
	}
	c := &certificates{fallback: fallback}
	for _, n := range t.SNI {
		pair, err := authn.NewKeyPair(n.CertFile, n.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("--tls-sni-cert-key=%s,%s: %w", n.CertFile, n.KeyFile, err)
		}
		c.named = append(c.named, namedPair{pair: pair, names: n.Names})
	}
	return c, nil
}

// choose is for tls.Config.GetCertificate: the certificate of the name or, without a name, of the
// address that the client connected to; else the first one that the client can use; else the fallback.
func (c *certificates) choose(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	fallback, err := c.fallback.GetCertificate(hello)
	if err != nil || len(c.named) == 0 {
		return fallback, err
	}
	if hello.ServerName == "" {
		if host, _, err := net.SplitHostPort(hello.Conn.LocalAddr().String()); err == nil {
			if found := c.find(host); found != nil {
				return found, nil
			}
		}
	} else {
		if found := c.find(hello.ServerName); found != nil {
			return found, nil
		}
		if _, parent, ok := strings.Cut(hello.ServerName, "."); ok {
			if found := c.find("*." + parent); found != nil {
				return found, nil
			}
		}
	}
	if hello.SupportsCertificate(fallback) == nil {
		return fallback, nil
	}
	for _, n := range c.named {
		if cert := n.current(); hello.SupportsCertificate(cert) == nil {
			return cert, nil
		}
	}
	return fallback, nil
}

// find returns the first certificate that was given for a name, else the first that has it; nil without.
func (c *certificates) find(name string) *tls.Certificate {
	is := func(other string) bool { return strings.EqualFold(name, other) }
	for _, n := range c.named {
		if slices.ContainsFunc(n.names, is) {
			return n.current()
		}
	}
	for _, n := range c.named {
		if cert := n.current(); len(n.names) == 0 && slices.ContainsFunc(namesOf(cert.Leaf), is) {
			return cert
		}
	}
	return nil
}

func (n *namedPair) current() *tls.Certificate {
	cert, _ := n.pair.GetCertificate(nil) // it has no error once the files were read
	return cert
}

// namesOf returns the domains of a certificate. IP addresses count by name only (TLS.SNI).
func namesOf(leaf *x509.Certificate) []string {
	names := slices.Clone(leaf.DNSNames)
	common := leaf.Subject.CommonName
	if net.ParseIP(common) == nil && (common == "*" || len(validation.IsDNS1123Subdomain(strings.TrimPrefix(common, "*."))) == 0) {
		names = append(names, common)
	}
	return names
}
