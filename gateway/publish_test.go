package gateway

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"portico/resource/client"
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

// The ConfigMap is created, then left alone while it is complete, and replaced on condition
// of its resourceVersion when a value is missing.
func TestPublishWritesWhatIsMissing(t *testing.T) {
	var stored string
	var writes []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && stored == "" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		if r.Method != http.MethodGet {
			body, _ := io.ReadAll(r.Body)
			cm := corev1.ConfigMap{}
			if err := json.Unmarshal(body, &cm); err != nil {
				t.Error(err)
			}
			writes = append(writes, fmt.Sprintf("%s %s at %q: %s", r.Method, path.Base(r.URL.Path), cm.ResourceVersion, cm.Data["requestheader-allowed-names"]))
			cm.ResourceVersion = fmt.Sprint(len(writes))
			body, _ = json.Marshal(&cm)
			stored = string(body)
		}
		_, _ = io.WriteString(w, stored)
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, []byte(certificate(t, time.Now().Add(time.Hour))), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &publisher{core: &coreClient{client: client.New(client.Config{BaseURL: server.URL})}, proxyCAFile: file}
	for _, names := range [][]string{{"a"}, {"a"}, {"b"}} {
		p.proxyNames = names
		if err := p.publish(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{`POST configmaps at "": ["a"]`, `PUT extension-apiserver-authentication at "1": ["a","b"]`}
	if !slices.Equal(writes, want) {
		t.Errorf("writes %q, want %q", writes, want)
	}
}
