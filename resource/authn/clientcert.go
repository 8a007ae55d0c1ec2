package authn

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"

	"portico/resource"
)

// extraCredentialID is the extra with the credential that a user presented.
const extraCredentialID = "authentication.kubernetes.io/credential-id"

// ClientCert takes the user from the TLS client certificate: the common name is
// the user, the organizations are its groups, and the subject attribute
// 1.3.6.1.4.1.57683.2, if there is one, is its uid (docs/wire.md 7.1). cas is called
// for every request and may return nil: then no certificate is claimed. A
// certificate of an unknown authority is an error.
func ClientCert(cas func() *x509.CertPool) Authenticator {
	return &clientCert{chains: newChains(cas, userOfCertificate)}
}

type clientCert struct{ chains *chains }

func (c *clientCert) Authenticate(r *http.Request) (*resource.User, bool, error) {
	presented, user, err := c.chains.verify(r.TLS)
	if err != nil {
		return nil, false, fmt.Errorf("verify client certificate %q: %w", r.TLS.PeerCertificates[0].Subject.CommonName, err)
	}
	return user, presented && user != nil, nil
}

// userOfCertificate returns the user that a verified certificate names; nil
// without a common name.
func userOfCertificate(leaf *x509.Certificate) (*resource.User, error) {
	if leaf.Subject.CommonName == "" {
		return nil, nil
	}
	uid, err := uidOfCertificate(leaf)
	if err != nil {
		return nil, err
	}
	fingerprint := sha256.Sum256(leaf.Raw)
	return withAuthenticated(&resource.User{
		Name:   leaf.Subject.CommonName,
		UID:    uid,
		Groups: leaf.Subject.Organization,
		Extra:  map[string][]string{extraCredentialID: {"X509SHA256=" + hex.EncodeToString(fingerprint[:])}},
	}), nil
}

// uidOfCertificate returns the uid in the subject, "" if there is none. An
// empty one, or more than one, is a mistake of the authority that must not be
// taken for no uid.
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
			return "", errors.New("the subject's uid is not a string with something in it")
		case uid != "":
			return "", errors.New("the subject has more than one uid")
		}
		uid = value
	}
	return uid, nil
}
