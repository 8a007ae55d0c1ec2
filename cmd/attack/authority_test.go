package attack

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"testing"
	"time"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// readAuthority reads an authority of the installation.
func readAuthority(certFile, keyFile string) (*authority, error) {
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("read authority: %w", err)
	}
	cert, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return nil, fmt.Errorf("read authority: %w", err)
	}
	return &authority{cert: cert, key: pair.PrivateKey.(*ecdsa.PrivateKey)}, nil
}

// pem is the certificate of the authority.
func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// subject is the content of a certificate. By default it is valid for an hour, for clients.
type subject struct {
	name   string
	groups []string
	hosts  []string // addresses: a certificate of a server
	usages []x509.ExtKeyUsage
	// noUsages omits the extension for extended key usages.
	noUsages bool
	// from and until are relative to now.
	from, until time.Duration
	ca          bool
}

// issue signs a certificate.
func (a *authority) issue(t *testing.T, s subject) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: s.name, Organization: s.groups},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		IsCA: s.ca, BasicConstraintsValid: s.ca,
	}
	if s.ca {
		template.KeyUsage |= x509.KeyUsageCertSign
	}
	if s.from != 0 {
		template.NotBefore = time.Now().Add(s.from)
	}
	if s.until != 0 {
		template.NotAfter = time.Now().Add(s.until)
	}
	for _, host := range s.hosts {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(host))
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	if s.usages != nil || s.noUsages {
		template.ExtKeyUsage = s.usages
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// ecdsaKey returns the key of an issued certificate.
func ecdsaKey(c *tls.Certificate) *ecdsa.PrivateKey { return c.PrivateKey.(*ecdsa.PrivateKey) }
