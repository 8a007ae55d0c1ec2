package pki

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"time"
)

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 365 * 24 * time.Hour
	// renewBefore is how long before its end a leaf is made again: a third of
	// its life, so that an installation started a few times a year never shows
	// an expired certificate.
	renewBefore = leafLife / 3
	// backdate lets a clock that is a little behind accept a new certificate.
	backdate = 5 * time.Minute
)

// authority signs leaves.
type authority struct {
	*pair
	certFile string
}

// ensureAuthority reads an authority or, if there is none, makes it. One that
// has a certificate but no usable key is an error: replacing it would lock out
// everyone who trusts it.
func ensureAuthority(certFile, keyFile, name string, now time.Time) (*authority, error) {
	p, err := readPair(certFile, keyFile)
	switch {
	case err == nil:
		if !p.cert.IsCA {
			return nil, fmt.Errorf("read %s: it is not a certificate authority", certFile)
		}
		return &authority{pair: p, certFile: certFile}, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	if _, statErr := os.Stat(certFile); statErr == nil {
		return nil, fmt.Errorf("read authority %s: its key %s is missing", certFile, keyFile)
	}
	key, err := newKey()
	if err != nil {
		return nil, fmt.Errorf("make key of %s: %w", name, err)
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(authorityLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	p, err = sign(template, template, key, key)
	if err != nil {
		return nil, fmt.Errorf("make authority %s: %w", name, err)
	}
	return &authority{pair: p, certFile: certFile}, p.write(certFile, keyFile)
}

// leaf is what a certificate shall say.
type leaf struct {
	subject pkix.Name
	// server names the hosts and addresses of a server certificate; empty is a
	// client certificate.
	server []string
}

// ensureLeaf reads a leaf or makes it, also when the one there is no longer
// good.
func (a *authority) ensureLeaf(certFile, keyFile string, want leaf, now time.Time) error {
	p, err := readPair(certFile, keyFile)
	// A leaf that cannot be read is made again: nobody trusts it by itself.
	if err == nil && a.good(p.cert, want, now) {
		return nil
	}
	if p, err = a.issue(want, now.Add(-backdate), now.Add(leafLife)); err != nil {
		return err
	}
	return p.write(certFile, keyFile)
}

// issue makes a leaf, which ends when its authority does at the latest.
func (a *authority) issue(want leaf, notBefore, notAfter time.Time) (*pair, error) {
	key, err := newKey()
	if err != nil {
		return nil, fmt.Errorf("make key of %s: %w", want.subject.CommonName, err)
	}
	template := &x509.Certificate{
		Subject:   want.subject,
		NotBefore: notBefore,
		NotAfter:  earlier(notAfter, a.cert.NotAfter),
		KeyUsage:  x509.KeyUsageDigitalSignature,
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if len(want.server) > 0 {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		for _, host := range want.server {
			if ip := net.ParseIP(host); ip != nil {
				template.IPAddresses = append(template.IPAddresses, ip)
			} else {
				template.DNSNames = append(template.DNSNames, host)
			}
		}
	}
	p, err := sign(template, a.cert, key, a.key)
	if err != nil {
		return nil, fmt.Errorf("make certificate %s: %w", want.subject.CommonName, err)
	}
	return p, nil
}

// good reports whether a certificate may stay.
func (a *authority) good(cert *x509.Certificate, want leaf, now time.Time) bool {
	if cert.CheckSignatureFrom(a.cert) != nil || now.Before(cert.NotBefore) {
		return false
	}
	// An authority near its own end cannot give more than it has.
	if now.After(cert.NotAfter.Add(-renewBefore)) && cert.NotAfter.Before(a.cert.NotAfter) || now.After(cert.NotAfter) {
		return false
	}
	if cert.Subject.String() != want.subject.String() {
		return false
	}
	for _, host := range want.server {
		if cert.VerifyHostname(host) != nil {
			return false
		}
	}
	return true
}

func sign(template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) (*pair, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &pair{cert: cert, key: key}, nil
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
