package authn

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico/resource"
)

// ClientCert takes the user from the TLS client certificate: the common name is the user,
// the organizations are the groups, and the subject attribute 1.3.6.1.4.1.57683.2, if
// present, is the uid (docs/wire.md 7.1). cas is called for every request; if it returns
// nil no certificate is claimed. A certificate of an unknown CA is an error.
func ClientCert(cas func() *x509.CertPool) Authenticator {
	return RevocableClientCert(cas, nil)
}

// RevocableClientCert is ClientCert that refuses revoked certificates; nil: none are.
func RevocableClientCert(cas func() *x509.CertPool, revocations *Revocations) Authenticator {
	c := &clientCert{chains: newChains(cas, userOfCertificate)}
	c.chains.revocations = revocations
	return c
}

type clientCert struct{ chains *chains }

func (c *clientCert) Authenticate(r *http.Request) (*resource.User, bool, error) {
	presented, u, err := c.chains.verify(r.TLS)
	if err != nil {
		return nil, false, fmt.Errorf("verify client certificate %q: %w", r.TLS.PeerCertificates[0].Subject.CommonName, err)
	}
	return u, presented && u != nil, nil
}

// userOfCertificate returns the user that a verified certificate names; nil without a
// common name.
func userOfCertificate(leaf *x509.Certificate) (*resource.User, error) {
	if leaf.Subject.CommonName == "" {
		return nil, nil
	}
	uid, err := uidOfCertificate(leaf)
	if err != nil {
		return nil, err
	}
	fingerprint := sha256.Sum256(leaf.Raw)
	return WithAuthenticated(&resource.User{
		Name:   leaf.Subject.CommonName,
		UID:    uid,
		Groups: leaf.Subject.Organization,
		Extra:  map[string][]string{user.CredentialIDKey: {"X509SHA256=" + hex.EncodeToString(fingerprint[:])}},
	}), nil
}

// uidOfCertificate returns the uid in the subject; "" without one. An empty uid, or more
// than one, is an error, so that a mistake of the CA does not pass as no uid.
func uidOfCertificate(leaf *x509.Certificate) (string, error) {
	oid := asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}
	var uid string
	for _, name := range leaf.Subject.Names {
		if !name.Type.Equal(oid) {
			continue
		}
		value, isString := name.Value.(string)
		switch {
		case !isString || value == "":
			return "", errors.New("the uid in the subject is not a string or is empty")
		case uid != "":
			return "", errors.New("the subject has more than one uid")
		}
		uid = value
	}
	return uid, nil
}

// chainCacheSize bounds the verified certificate chains that are cached. Each takes a few
// hundred bytes; a client usually has one.
const chainCacheSize = 4096

// chains verifies client certificates against CAs that may change, and caches the valid
// ones: every request needs the result, which changes only with the CAs or the clock. Safe
// for concurrent use.
type chains struct {
	cas func() *x509.CertPool
	// convert returns the user of a verified leaf, or an error that rejects it.
	convert func(leaf *x509.Certificate) (*resource.User, error)
	// revocations has the revoked certificates; nil: none are.
	revocations *Revocations
	verified    *lru.Cache[[sha256.Size]byte, verifiedChain]
	now         func() time.Time
}

// verifiedChain is the result for a valid chain. It holds as long as the CAs and the revocation
// lists are the same, until the first certificate of the chain expires.
type verifiedChain struct {
	cas   *x509.CertPool
	lists *revoked
	until time.Time
	user  *resource.User
}

func newChains(cas func() *x509.CertPool, convert func(*x509.Certificate) (*resource.User, error)) *chains {
	cache, _ := lru.New[[sha256.Size]byte, verifiedChain](chainCacheSize) // fails for sizes below 1 only
	return &chains{cas: cas, convert: convert, verified: cache, now: time.Now}
}

// verify checks the client's certificates. presented is false if there is no certificate
// or no CA.
func (c *chains) verify(state *tls.ConnectionState) (presented bool, u *resource.User, err error) {
	if state == nil || len(state.PeerCertificates) == 0 {
		return false, nil, nil
	}
	cas := c.cas()
	if cas == nil {
		return false, nil, nil
	}
	key, now, lists := digest(state.PeerCertificates), c.now(), c.revocations.current()
	if v, found := c.verified.Get(key); found && v.cas == cas && v.lists == lists && now.Before(v.until) {
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
	verified, err := leaf.Verify(options)
	if err != nil {
		return true, nil, err
	}
	for _, chain := range verified {
		if err := c.revocations.check(lists, chain); err != nil {
			return true, nil, err
		}
	}
	if u, err = c.convert(leaf); err != nil {
		return true, nil, err
	}
	c.verified.Add(key, verifiedChain{cas: cas, lists: lists, until: firstEnd(verified[0]), user: u})
	return true, u, nil
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

// firstEnd returns when the first certificate of the chain expires.
func firstEnd(chain []*x509.Certificate) time.Time {
	end := chain[0].NotAfter
	for _, cert := range chain[1:] {
		if cert.NotAfter.Before(end) {
			end = cert.NotAfter
		}
	}
	return end
}
