package pki

import (
	"cmp"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"slices"
	"time"
)

// backdate makes new certificates valid on machines with a slow clock.
const backdate = 5 * time.Minute

// Lifetimes are those of new certificates.
type Lifetimes struct {
	// Leaf is that of certificates of servers and clients. Zero: DefaultLeafLifetime.
	Leaf time.Duration
	// Authority is that of CAs. Zero: DefaultAuthorityLifetime.
	Authority time.Duration
}

// The lifetimes of certificates by default.
const (
	DefaultLeafLifetime      = 365 * 24 * time.Hour
	DefaultAuthorityLifetime = 10 * 365 * 24 * time.Hour
)

func (l Lifetimes) orDefault() Lifetimes {
	return Lifetimes{Leaf: cmp.Or(l.Leaf, DefaultLeafLifetime), Authority: cmp.Or(l.Authority, DefaultAuthorityLifetime)}
}

// lifeOf returns the lifetime that a certificate was made with.
func lifeOf(cert *x509.Certificate) time.Duration {
	return cert.NotAfter.Sub(cert.NotBefore) - backdate
}

// authority is a CA.
type authority struct {
	*pair // its certificate in use, and the key of that
	files Pair
	// trusted are the certificates of the CA that verifiers trust, the one in use first.
	trusted []*x509.Certificate
	// next is the one of them that will be used; nil: none, or settle has not found it.
	next *x509.Certificate
	// crosses are certificates for the keys of trusted ones by earlier ones, the latest first.
	crosses []*x509.Certificate
}

// readAuthority reads a CA. The error wraps fs.ErrNotExist if a file is missing.
func readAuthority(files Pair) (*authority, error) {
	key, err := readKey(files.KeyFile)
	if err != nil {
		return nil, err
	}
	certs, err := readCertificates(files.CertFile)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(certs, func(c *x509.Certificate) bool { return isOf(c, key) })
	switch {
	case i < 0:
		return nil, fmt.Errorf("read %s and %s: the key is of none of the certificates", files.CertFile, files.KeyFile)
	case !certs[i].IsCA:
		return nil, fmt.Errorf("read %s: it is not a CA certificate", files.CertFile)
	}
	a := &authority{pair: &pair{cert: certs[i], key: key}, files: files}
	a.trusted = append([]*x509.Certificate{a.cert}, slices.Delete(certs, i, i+1)...)
	a.crosses, err = readCertificates(crossFile(files))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return a, nil
}

// ensureAuthority reads a CA or makes it. A CA certificate without a usable key is an error:
// replacing the CA would lock out all that trust it.
func ensureAuthority(files Pair, name string, now time.Time, life time.Duration) (*authority, error) {
	a, err := readAuthority(files)
	if !errors.Is(err, fs.ErrNotExist) {
		return a, err
	}
	if _, statErr := os.Stat(files.CertFile); statErr == nil {
		return nil, fmt.Errorf("read CA %s: its key %s is missing", files.CertFile, files.KeyFile)
	}
	key, err := newKey()
	if err != nil {
		return nil, fmt.Errorf("make key of %s: %w", name, err)
	}
	p, err := selfSigned(pkix.Name{CommonName: name}, key, now, life)
	if err != nil {
		return nil, fmt.Errorf("make CA %s: %w", name, err)
	}
	return &authority{pair: p, files: files, trusted: []*x509.Certificate{p.cert}}, p.write(files)
}

// authorityTemplate describes the certificate of a root CA.
func authorityTemplate(subject pkix.Name, notBefore, notAfter time.Time) *x509.Certificate {
	return &x509.Certificate{
		Subject:               subject,
		NotBefore:             notBefore,
		NotAfter:              notAfter,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
}

// selfSigned makes a root CA.
func selfSigned(subject pkix.Name, key crypto.Signer, now time.Time, life time.Duration) (*pair, error) {
	template := authorityTemplate(subject, now.Add(-backdate), now.Add(life))
	return sign(template, template, key, key)
}

// ensureIntermediate makes a CA below a, which signs client certificates alone, unless the files
// have one that outlives what it signs. Certificates that an earlier one signed stay valid.
func (a *authority) ensureIntermediate(files Pair, name string, now time.Time, life Lifetimes) error {
	have, err := readAuthority(files)
	if err == nil && have.cert.CheckSignatureFrom(a.cert) == nil && (now.Before(have.cert.NotAfter.Add(-life.Leaf)) || !have.cert.NotAfter.Before(a.cert.NotAfter)) {
		return nil
	}
	key, err := newKey()
	if err != nil {
		return fmt.Errorf("make key of %s: %w", name, err)
	}
	template := authorityTemplate(pkix.Name{CommonName: name}, now.Add(-backdate), earlier(now.Add(life.Authority), a.cert.NotAfter))
	template.ExtKeyUsage, template.MaxPathLenZero = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, true
	p, err := sign(template, a.cert, key, a.key)
	if err != nil {
		return fmt.Errorf("make CA %s: %w", name, err)
	}
	return p.write(files)
}

// leaf describes a certificate.
type leaf struct {
	subject pkix.Name
	// server has the names and addresses of a server certificate; it is empty for a client
	// certificate.
	server []string
	// client is set for a server that is also a client of its like.
	client bool
}

// ensureLeaf makes a leaf, unless the files have a valid one. A leaf that cannot be read is
// replaced: nothing trusts it except through its CA.
func (a *authority) ensureLeaf(files Pair, want leaf, now time.Time, life time.Duration) error {
	p, err := readPair(files)
	if err == nil && a.keeps(p.cert, want, now) {
		return nil
	}
	if p, err = a.issue(want, now.Add(-backdate), now.Add(life)); err != nil {
		return err
	}
	return p.write(files)
}

// issue makes a leaf, followed by what verifiers need that trust an earlier certificate of the CA. It
// expires with its CA at the latest.
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
		if want.client {
			template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
		}
		for _, host := range distinct(want.server) {
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
	p.chain = a.chain()
	return p, nil
}

// keeps reports whether a certificate need not be replaced: it is replaced when a third of its
// lifetime is left.
func (a *authority) keeps(cert *x509.Certificate, want leaf, now time.Time) bool {
	if cert.CheckSignatureFrom(a.cert) != nil || now.Before(cert.NotBefore) {
		return false
	}
	// A leaf that expires with its CA cannot be renewed.
	if now.After(cert.NotAfter.Add(-lifeOf(cert)/3)) && cert.NotAfter.Before(a.cert.NotAfter) || now.After(cert.NotAfter) {
		return false
	}
	if cert.Subject.String() != want.subject.String() {
		return false
	}
	return slices.Equal(hostsOf(cert), distinct(want.server))
}

// hostsOf returns the hosts of a certificate in the form of distinct.
func hostsOf(cert *x509.Certificate) []string {
	hosts := slices.Clone(cert.DNSNames)
	for _, ip := range cert.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	return distinct(hosts)
}

// distinct returns the hosts in order, each once.
func distinct(hosts []string) []string {
	out := make([]string, len(hosts))
	for i, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			host = ip.String()
		}
		out[i] = host
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func sign(template, parent *x509.Certificate, key, signer crypto.Signer) (*pair, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
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
