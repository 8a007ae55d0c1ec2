package authentication

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	certutil "k8s.io/client-go/util/cert"

	"portico/internal/testing/await"
)

// ClientCAs has the authorities of both files, and follows their changes.
func TestClientCAs(t *testing.T) {
	t.Parallel()
	authority := func(path, name string) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: name}, key)
		if err == nil {
			err = os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	users, proxies := filepath.Join(t.TempDir(), "users.crt"), filepath.Join(t.TempDir(), "proxies.crt")
	authority(users, "users")
	authority(proxies, "proxies")
	a, err := New(Config{ClientCAFile: users, RequestHeader: RequestHeader{CAFile: proxies}}, Dependencies{})
	if err != nil {
		t.Fatal(err)
	}
	names := func() (all []string) {
		//lint:ignore SA1019 the pool has no certificates of the system
		subjects := a.ClientCAs().Subjects()
		for _, subject := range subjects {
			i := slices.IndexFunc([]string{"users", "proxies", "others"}, func(name string) bool { return strings.Contains(string(subject), name) })
			all = append(all, []string{"users", "proxies", "others"}[i])
		}
		return all
	}
	if got := names(); !slices.Equal(got, []string{"users", "proxies"}) {
		t.Errorf("got %v", got)
	}
	if before := a.ClientCAs(); a.ClientCAs() != before {
		t.Error("the pool changes without a file")
	}
	authority(proxies, "others")
	await.Until(t, "the file is read again", func() bool { return slices.Equal(names(), []string{"users", "others"}) })
}
