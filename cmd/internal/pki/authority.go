package pki

import (
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

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 365 * 24 * time.Hour
	// renewBefore is the time before expiry at which a leaf is replaced: a third of its
	// lifetime, so that no certificate expires in an installation that is started a few times
	// a year.
	renewBefore = leafLife / 3
	// backdate makes new certificates valid on machines with a slow clock.
	backdate = 5 * time.Minute
)

// authority is a CA.
type authority struct {
	*pair
	files Pair
}

// readAuthority reads a CA. The error wraps fs.ErrNotExist if a file is missing.
func readAuthority(files Pair) (*authority, error) {
	p, err := readPair(files)
	switch {
	case err != nil:
		return nil, err
	case !p.cert.IsCA:
		return nil, fmt.Errorf("read %s: it is not a CA certificate", files.CertFile)
	}
	return &authority{p, files}, nil
}

// ensureAuthority reads a CA or makes it. A CA certificate without a usable key is an error:
// replacing the CA would lock out all that trust it.
func ensureAuthority(files Pair, name string, now time.Time) (*authority, error) {
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
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(authorityLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	p, err := sign(template, template, key, key)
	if err != nil {
		return nil, fmt.Errorf("make CA %s: %w", name, err)
	}
	return &authority{p, files}, p.write(files)
}

// ensureIntermediate makes a CA below a, which signs client certificates alone, unless the files
// have one that outlives what it signs. Certificates that an earlier one signed stay valid.
func (a *authority) ensureIntermediate(files Pair, name string, now time.Time) error {
	have, err := readAuthority(files)
	if err == nil && have.cert.CheckSignatureFrom(a.cert) == nil && (now.Before(have.cert.NotAfter.Add(-leafLife)) || !have.cert.NotAfter.Before(a.cert.NotAfter)) {
		return nil
	}
	key, err := newKey()
	if err != nil {
		return fmt.Errorf("make key of %s: %w", name, err)
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-backdate),
		NotAfter:              earlier(now.Add(authorityLife), a.cert.NotAfter),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
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
func (a *authority) ensureLeaf(files Pair, want leaf, now time.Time) error {
	p, err := readPair(files)
	if err == nil && a.keeps(p.cert, want, now) {
		return nil
	}
	if p, err = a.issue(want, now.Add(-backdate), now.Add(leafLife)); err != nil {
		return err
	}
	return p.write(files)
}

// issue makes a leaf. It expires with its CA at the latest.
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
	return p, nil
}

// keeps reports whether a certificate need not be replaced.
func (a *authority) keeps(cert *x509.Certificate, want leaf, now time.Time) bool {
	if cert.CheckSignatureFrom(a.cert) != nil || now.Before(cert.NotBefore) {
		return false
	}
	// A leaf that expires with its CA cannot be renewed.
	if now.After(cert.NotAfter.Add(-renewBefore)) && cert.NotAfter.Before(a.cert.NotAfter) || now.After(cert.NotAfter) {
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
