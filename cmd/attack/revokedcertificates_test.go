package attack

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"portico/cmd/internal/pki"
	"portico/internal/testing/await"
)

// revocationLists is the file of --client-crl-file, in the data folder.
const revocationLists = "clients.crl"

// writeFirstLists makes the file before there are authorities: a stranger's list.
func writeFirstLists(dir string) error {
	folder := filepath.Join(dir, "no-authority")
	if err := pki.EnsureAuthorities(folder); err != nil {
		return err
	}
	stranger, err := readAuthority(filepath.Join(folder, "client-ca.crt"), filepath.Join(folder, "client-ca.key"))
	if err != nil {
		return err
	}
	list, err := stranger.revoke(big.NewInt(1))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, revocationLists), list, 0o600)
}

// revoke returns a list of revoked certificates.
func (a *authority) revoke(serials ...*big.Int) ([]byte, error) {
	list := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Now(), NextUpdate: time.Now().Add(time.Hour)}
	for _, serial := range serials {
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: serial, RevocationTime: time.Now()})
	}
	der, err := x509.CreateRevocationList(rand.Reader, list, a.cert, a.key)
	return pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der}), err
}

// replaceFile replaces a file that is read meanwhile.
func replaceFile(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// oneConnection returns a client with a certificate, and how often it has connected.
func (i *installation) oneConnection(certificate *tls.Certificate) (*http.Client, *atomic.Int32) {
	client, dials := i.client(certificate), new(atomic.Int32)
	client.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		dials.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	return client, dials
}

// becomes waits for a status of requests of a client, and returns how long that took.
func (i *installation) becomes(t *testing.T, what string, client *http.Client, want int) time.Duration {
	t.Helper()
	began := time.Now()
	eventually(t, what, func() error {
		code, user, _, err := i.review(client)
		if err == nil && code != want {
			err = fmt.Errorf("%d as %q, want %d", code, user, want)
		}
		return err
	})
	return time.Since(began)
}

// A certificate is refused soon after a list of its authority has it,
// on a connection that exists too. Lists of other authorities revoke nothing.
func TestRevokedCertificates(t *testing.T) {
	t.Parallel()
	i := target
	certificate := i.clients.issue(t, subject{name: "revoked"})
	leaf, err := x509.ParseCertificate(certificate.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	client, dials := i.oneConnection(certificate)
	for _, step := range []struct {
		name   string
		by     *authority
		serial *big.Int
		want   int
	}{
		{"control: no list has it", i.clients, big.NewInt(1), http.StatusCreated},
		{"its authority revokes it", i.clients, leaf.SerialNumber, http.StatusUnauthorized},
		{"its authority takes that back", i.clients, big.NewInt(1), http.StatusCreated},
		{"its authority revokes it again", i.clients, leaf.SerialNumber, http.StatusUnauthorized},
		{"a stranger of the authority's name lists it instead", i.stranger, leaf.SerialNumber, http.StatusCreated},
		{"its authority revokes it a third time", i.clients, leaf.SerialNumber, http.StatusUnauthorized},
		{"the authority of front proxies lists it instead", i.frontProxies, leaf.SerialNumber, http.StatusCreated},
	} {
		list, err := step.by.revoke(step.serial)
		if err != nil {
			t.Fatal(err)
		}
		connected := dials.Load()
		replaceFile(t, filepath.Join(i.Dir, revocationLists), list)
		await.Bar(t, step.name, i.becomes(t, step.name, client, step.want), revokedWithin)
		// The gateway ends a connection after the second refusal on it.
		if step.want == http.StatusUnauthorized && dials.Load() != max(connected, 1) {
			t.Errorf("%s: refused on another connection", step.name)
		}
		fresh := i.client(certificate)
		if code, _, _, err := i.review(fresh); err != nil || code != step.want {
			t.Errorf("%s: a new connection gets %d %v, want %d", step.name, code, err, step.want)
		}
		fresh.CloseIdleConnections()
	}
}

// A certificate of an authority that is not trusted any more is refused soon, on a connection that exists too.
func TestCertificatesOfRetiredAuthorities(t *testing.T) {
	t.Parallel()
	i := target
	folder := t.TempDir()
	if err := pki.EnsureAuthorities(folder); err != nil {
		t.Fatal(err)
	}
	retired, err := readAuthority(filepath.Join(folder, "client-ca.crt"), filepath.Join(folder, "client-ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	client, dials := i.oneConnection(retired.issue(t, subject{name: "late", groups: []string{masters}}))
	replaceFile(t, i.file("client-ca.crt"), append(i.clients.pem(), retired.pem()...))
	i.becomes(t, "control: the authority is trusted", client, http.StatusCreated)
	connected := dials.Load()
	replaceFile(t, i.file("client-ca.crt"), i.clients.pem())
	await.Bar(t, "the refusal of a certificate of a retired authority", i.becomes(t, "the authority is retired", client, http.StatusUnauthorized), revokedWithin)
	if dials.Load() != connected {
		t.Error("refused on another connection")
	}
}
