package authn

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"
)

// revoke returns a list of the CA that has the serial numbers.
func (ca *testCA) revoke(t *testing.T, nextUpdate time.Time, serials ...int64) []byte {
	t.Helper()
	list := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Now().Add(-time.Hour), NextUpdate: nextUpdate}
	for _, serial := range serials {
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries,
			x509.RevocationListEntry{SerialNumber: big.NewInt(serial), RevocationTime: time.Now().Add(-time.Hour)})
	}
	der, err := x509.CreateRevocationList(rand.Reader, list, ca.cert, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der})
}

// A certificate that a list of its authority has is refused, on a connection that was accepted before
// too, and until the list is without it. Lists of other authorities, also of the same name, and
// files that cannot be read change nothing; a list that is out of date counts.
func TestRevokedCertificates(t *testing.T) {
	t.Parallel()
	ca, next, other := newTestCA(t, "clients"), newTestCA(t, "clients"), newTestCA(t, "clients")
	path, caPath := filepath.Join(t.TempDir(), "crl.pem"), filepath.Join(t.TempDir(), "ca.pem")
	soon := time.Now().Add(time.Hour)
	writeFile(t, caPath, append(certPEM(ca.cert), certPEM(next.cert)...))
	writeFile(t, path, ca.revoke(t, soon, 77))
	file, err := NewCAFile(caPath)
	if err != nil {
		t.Fatal(err)
	}
	revocations, err := NewRevocations(path, file)
	if err != nil {
		t.Fatal(err)
	}
	alwaysCheck(revocations.lists)
	authenticator := RevocableClientCert(file.Pool, revocations)
	r := httptest.NewRequest("GET", "/", nil)
	r.TLS = connection(ca.leaf(t, pkix.Name{CommonName: "jane"}, soon)) // serial number 2
	for _, step := range []struct {
		name    string
		list    []byte
		refused bool
	}{
		{"of another certificate", ca.revoke(t, soon, 77), false},
		{"of it", ca.revoke(t, soon, 77, 2), true},
		{"garbage: the last list counts", []byte("garbage"), true},
		{"without it", ca.revoke(t, soon), false},
		{"of another authority of the same name", other.revoke(t, soon, 2), false},
		{"of the authority's next key", next.revoke(t, soon, 2), true},
		{"of another authority and without it", append(other.revoke(t, soon, 2), ca.revoke(t, soon)...), false},
		{"out of date", ca.revoke(t, time.Now().Add(-time.Minute), 2), true},
	} {
		writeFile(t, path, step.list)
		_, claimed, err := authenticator.Authenticate(r)
		if step.refused != (err != nil) || claimed == step.refused {
			t.Errorf("a list %s: claimed %t, %v", step.name, claimed, err)
		}
	}
	for _, bad := range [][]byte{nil, certPEM(ca.cert), []byte("garbage")} {
		writeFile(t, path, bad)
		if _, err := NewRevocations(path, file); err == nil {
			t.Errorf("accepted %q", bad)
		}
	}
}
