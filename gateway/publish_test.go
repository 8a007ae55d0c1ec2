package gateway

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"
	"time"
)

// certificate makes one in PEM that is valid until a time.
func certificate(t *testing.T, until time.Time) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: until.Add(-time.Hour), NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// Several gateways publish one ConfigMap: each adds what it lacks and leaves the rest,
// so that it comes to rest; what has expired goes.
func TestPublishedIsMerged(t *testing.T) {
	now := time.Now()
	a, b, old := certificate(t, now.Add(time.Hour)), certificate(t, now.Add(time.Hour)), certificate(t, now.Add(-time.Minute))
	for _, c := range []struct{ key, stored, own, want string }{
		{"client-ca-file", "", a, a},
		{"client-ca-file", a, a, a},
		{"client-ca-file", b, a, b + a},
		{"client-ca-file", b + a, a, b + a},
		{"client-ca-file", "# ours\n" + b + old, "# mine\n" + a + a, b + a},
		{"client-ca-file", "nonsense", a, a},
		{"client-ca-file", old, old, ""},
		{"client-ca-file", a, old, a},
		{"requestheader-client-ca-file", b, a, b + a},
		{"requestheader-allowed-names", "", `[]`, `[]`},
		{"requestheader-allowed-names", `["other"]`, `["front-proxy-client"]`, `["other","front-proxy-client"]`},
		{"requestheader-allowed-names", `["other","front-proxy-client"]`, `["front-proxy-client"]`, `["other","front-proxy-client"]`},
		{"requestheader-group-headers", `nonsense`, `["X-Remote-Group"]`, `["X-Remote-Group"]`},
	} {
		got, err := merged(c.key, c.stored, c.own, now)
		if err != nil || got != c.want {
			t.Errorf("%s: %s and %s: got %s, want %s (%v)", c.key, c.stored, c.own, got, c.want, err)
		}
	}
}
