package authn

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"portico/resource"
)

// chainCacheSize bounds the certificate chains remembered as verified. Each is
// a few hundred bytes; a client usually has one.
const chainCacheSize = 4096

// chains verifies client certificates against CAs that may change, and caches the
// valid ones: every request needs the result, which changes only with the CAs or the
// clock. Safe for concurrent use.
type chains struct {
	cas func() *x509.CertPool
	// convert makes the user of a verified leaf; it may also refuse it.
	convert  func(leaf *x509.Certificate) (*resource.User, error)
	verified *lru.Cache[[sha256.Size]byte, verifiedChain]
	now      func() time.Time
}

// verifiedChain is a good answer, while the authorities are the same and until
// the first certificate of the chain ends.
type verifiedChain struct {
	cas   *x509.CertPool
	until time.Time
	user  *resource.User
}

func newChains(cas func() *x509.CertPool, convert func(*x509.Certificate) (*resource.User, error)) *chains {
	cache, _ := lru.New[[sha256.Size]byte, verifiedChain](chainCacheSize) // fails for sizes below 1 only
	return &chains{cas: cas, convert: convert, verified: cache, now: time.Now}
}

// verify checks the client's certificates. presented is false when there is
// nothing to check: no certificate, or no authorities.
func (c *chains) verify(state *tls.ConnectionState) (presented bool, user *resource.User, err error) {
	if state == nil || len(state.PeerCertificates) == 0 {
		return false, nil, nil
	}
	cas := c.cas()
	if cas == nil {
		return false, nil, nil
	}
	key, now := digest(state.PeerCertificates), c.now()
	if v, found := c.verified.Get(key); found && v.cas == cas && now.Before(v.until) {
		return true, v.user, nil
	}
	leaf := state.PeerCertificates[0]
	options := x509.VerifyOptions{
		Roots:         cas,
		Intermediates: x509.NewCertPool(),
		CurrentTime:   now,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, cert := range state.PeerCertificates[1:] {
		options.Intermediates.AddCert(cert)
	}
	good, err := leaf.Verify(options)
	if err != nil {
		return true, nil, err
	}
	if user, err = c.convert(leaf); err != nil {
		return true, nil, err
	}
	c.verified.Add(key, verifiedChain{cas: cas, until: firstEnd(good[0]), user: user})
	return true, user, nil
}

// digest identifies a list of certificates.
func digest(certs []*x509.Certificate) [sha256.Size]byte {
	if len(certs) == 1 {
		return sha256.Sum256(certs[0].Raw)
	}
	h := sha256.New()
	for _, cert := range certs {
		h.Write(cert.Raw) // DER contains its length: the concatenation is unambiguous
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// firstEnd returns when the first certificate of the chain ends.
func firstEnd(chain []*x509.Certificate) time.Time {
	end := chain[0].NotAfter
	for _, cert := range chain[1:] {
		if cert.NotAfter.Before(end) {
			end = cert.NotAfter
		}
	}
	return end
}
