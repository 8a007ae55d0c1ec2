package authn

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"
)

// Revocations are lists of revoked certificates (RFC 5280, 5) in a PEM file, of one or more
// authorities. The file is read again when it changes. Safe for concurrent use.
//
// A list counts for certificates of its issuer's name and is signed by a CA of that name: one of the
// trusted ones, so that the list of a CA that was renewed covers certificates that it signed with an
// earlier key, or one of the certificate's own chain. Any other list revokes nothing. A list counts
// beyond its nextUpdate, with a warning in the log: what was revoked stays so, and a list that was
// not renewed does not shut all clients out.
type Revocations struct {
	lists *reloaded[*revoked]
	cas   []*CAFile
}

// revoked are the lists of a file, by issuer and then by serial number.
type revoked struct{ byIssuer map[string][]revokedList }

type revokedList struct {
	list    *x509.RevocationList
	serials map[string]struct{}
}

// NewRevocations reads the file. A file without lists is an error. cas are the trusted CAs.
func NewRevocations(path string, cas ...*CAFile) (*Revocations, error) {
	lists, err := newReloaded(func() (*revoked, error) { return readRevoked(path) }, path)
	if err != nil {
		return nil, err
	}
	return &Revocations{lists: lists, cas: cas}, nil
}

func readRevoked(path string) (*revoked, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read revocation lists: %w", err)
	}
	all := &revoked{byIssuer: map[string][]revokedList{}}
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "X509 CRL" {
			return nil, fmt.Errorf("read revocation lists: %s has a PEM block of type %q, not X509 CRL", path, block.Type)
		}
		list, err := x509.ParseRevocationList(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("read revocation lists of %s: %w", path, err)
		}
		if !list.NextUpdate.IsZero() && time.Now().After(list.NextUpdate) {
			slog.Warn("a list of revoked certificates is out of date; it counts nevertheless", "file", path, "issuer", list.Issuer.String(), "nextUpdate", list.NextUpdate)
		}
		serials := make(map[string]struct{}, len(list.RevokedCertificateEntries))
		for _, entry := range list.RevokedCertificateEntries {
			serials[entry.SerialNumber.String()] = struct{}{}
		}
		issuer := string(list.RawIssuer)
		all.byIssuer[issuer] = append(all.byIssuer[issuer], revokedList{list, serials})
	}
	if len(all.byIssuer) == 0 {
		return nil, fmt.Errorf("read revocation lists: no PEM block X509 CRL in %s", path)
	}
	return all, nil
}

// errRevoked reports a certificate that a list of its authority has.
var errRevoked = errors.New("the certificate is revoked")

// current returns the lists; nil without any.
func (r *Revocations) current() *revoked {
	if r == nil {
		return nil
	}
	return r.lists.get()
}

// check returns an error if a certificate of a verified chain is revoked.
func (r *Revocations) check(lists *revoked, chain []*x509.Certificate) error {
	if lists == nil {
		return nil
	}
	for i, cert := range chain {
		for _, l := range lists.byIssuer[string(cert.RawIssuer)] {
			if _, listed := l.serials[cert.SerialNumber.String()]; listed && r.signed(l.list, chain[i:]) {
				return errRevoked
			}
		}
	}
	return nil
}

// signed reports whether a CA that may revoke the first certificate of a chain has signed the list.
func (r *Revocations) signed(list *x509.RevocationList, chain []*x509.Certificate) bool {
	issuers := chain
	for _, ca := range r.cas {
		issuers = append(issuers[:len(issuers):len(issuers)], ca.bundle.get().certs...)
	}
	for _, issuer := range issuers {
		if issuer.IsCA && string(issuer.RawSubject) == string(list.RawIssuer) && list.CheckSignatureFrom(issuer) == nil {
			return true
		}
	}
	return false
}
