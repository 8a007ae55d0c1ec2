package pki

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"
)

// A root CA is replaced in three steps, each by the change of one file at last:
//
//	trust   NAME-next.key has a new key, and NAME.crt a second certificate for it
//	use     NAME-next.key becomes NAME.key, which signs from then on
//	retire  NAME.crt loses the certificates of earlier keys
//
// NAME-cross.crt has certificates for the new key by the earlier ones. Leaves carry them, so that a
// verifier that trusts an earlier certificate alone, such as the holder of an old kubeconfig,
// accepts leaves of the new key until the earlier certificate ends.

func nextKeyFile(files Pair) string { return strings.TrimSuffix(files.KeyFile, ".key") + "-next.key" }
func crossFile(files Pair) string   { return strings.TrimSuffix(files.CertFile, ".crt") + "-cross.crt" }

// overlap is how long a certificate of a CA is trusted before it is used: a twentieth of its
// lifetime, at most an hour, for which verifiers of tokens keep the keys that they read.
func overlap(cert *x509.Certificate) time.Duration { return min(lifeOf(cert)/20, time.Hour) }

// renew replaces the CA when half of its lifetime is left, or on request, by one step at a time.
// Certificates that have ended are not trusted any more.
func (a *authority) renew(now time.Time, life time.Duration, requested bool) error {
	if err := a.settle(); err != nil {
		return err
	}
	left := a.cert.NotAfter.Sub(now)
	if a.next == nil && (requested || left < lifeOf(a.cert)/2) {
		if err := a.trustNext(now, life); err != nil {
			return err
		}
	}
	if a.next != nil && (!now.Before(a.usedFrom()) || left <= 0) {
		if err := a.useNext(); err != nil {
			return err
		}
		return a.renew(now, life, false)
	}
	return a.retire(func(c *x509.Certificate) bool { return now.After(c.NotAfter) })
}

// settle finds the certificate to use next, and completes a step that a crash cut off.
func (a *authority) settle() error {
	key, err := readKey(nextKeyFile(a.files))
	switch {
	case err == nil:
		if i := slices.IndexFunc(a.trusted, func(c *x509.Certificate) bool { return isOf(c, key) }); i >= 0 {
			a.next = a.trusted[i]
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return a.writeTrusted()
}

// trustNext makes the certificate to use next, which is trusted from now on.
func (a *authority) trustNext(now time.Time, life time.Duration) error {
	key, err := readKey(nextKeyFile(a.files)) // after a crash
	if errors.Is(err, fs.ErrNotExist) {
		if key, err = newKey(); err == nil {
			err = writeKey(nextKeyFile(a.files), key)
		}
	}
	if err != nil {
		return fmt.Errorf("make key of %s: %w", a.cert.Subject.CommonName, err)
	}
	next, err := selfSigned(a.cert.Subject, key, now, life)
	if err != nil {
		return fmt.Errorf("make CA %s: %w", a.cert.Subject.CommonName, err)
	}
	template := authorityTemplate(a.cert.Subject, next.cert.NotBefore, earlier(next.cert.NotAfter, a.cert.NotAfter))
	template.AuthorityKeyId = a.cert.SubjectKeyId // both have one name: verifiers try the key of this identifier first
	cross, err := sign(template, a.cert, key, a.key)
	if err != nil {
		return fmt.Errorf("make cross-certificate of %s: %w", a.cert.Subject.CommonName, err)
	}
	a.crosses = slices.Insert(a.crosses, 0, cross.cert)
	if err := writeFile(crossFile(a.files), encode(a.crosses)); err != nil {
		return err
	}
	a.next = next.cert
	a.trusted = append(a.trusted, next.cert)
	return a.writeTrusted()
}

// useNext signs with the next key from now on. The present key is deleted.
func (a *authority) useNext() error {
	if err := rename(nextKeyFile(a.files), a.files.KeyFile); err != nil {
		return fmt.Errorf("replace key of CA: %w", err)
	}
	now, err := readAuthority(a.files)
	if err != nil {
		return err
	}
	*a = *now
	return a.writeTrusted()
}

// retire ends the trust in the certificates that are neither in use nor next and for which gone returns true.
func (a *authority) retire(gone func(*x509.Certificate) bool) error {
	a.trusted = slices.DeleteFunc(a.trusted, func(c *x509.Certificate) bool { return c != a.cert && c != a.next && gone(c) })
	if err := a.writeTrusted(); err != nil {
		return err
	}
	had := len(a.crosses)
	a.crosses = slices.DeleteFunc(a.crosses, func(cross *x509.Certificate) bool {
		return !slices.ContainsFunc(a.trusted, func(c *x509.Certificate) bool { return cross.CheckSignatureFrom(c) == nil })
	})
	switch {
	case len(a.crosses) == had:
		return nil
	case len(a.crosses) == 0:
		return os.Remove(crossFile(a.files))
	}
	return writeFile(crossFile(a.files), encode(a.crosses))
}

// writeTrusted writes the trusted certificates if the file has others, or others first.
func (a *authority) writeTrusted() error {
	want := encode(a.trusted)
	have, err := readCertificates(a.files.CertFile)
	if err != nil || bytes.Equal(encode(have), want) {
		return err
	}
	return writeFile(a.files.CertFile, want)
}

// chain is what follows a leaf for verifiers that trust an earlier certificate.
func (a *authority) chain() []*x509.Certificate {
	i := slices.IndexFunc(a.crosses, func(c *x509.Certificate) bool { return isOf(c, a.key) })
	if i < 0 {
		return nil
	}
	return a.crosses[i:]
}
