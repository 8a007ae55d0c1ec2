package etcd

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"portico/internal/testing/await"
)

// A diagnosis names the endpoint, the cause and what to do, within seconds.
func TestDiagnose(t *testing.T) {
	t.Parallel()
	etcd := newServer(t)
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(secure.Close)
	strict := httptest.NewUnstartedServer(http.NotFoundHandler())
	strict.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, NextProtos: []string{"h2"}}
	strict.StartTLS()
	t.Cleanup(strict.Close)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, pemOf(secure.Certificate()), 0o600); err != nil {
		t.Fatal(err)
	}
	host := func(url string) string { return strings.TrimPrefix(strings.TrimPrefix(url, "https://"), "http://") }
	for _, tc := range []struct {
		name    string
		cfg     Config
		want    []string // "" if there is no error
		lasting bool
	}{
		{"it answers", Config{Endpoints: []string{etcd.DirectEndpoint()}}, nil, false},
		{"one of two answers", Config{Endpoints: []string{"unix:///no/socket", etcd.DirectEndpoint()}}, nil, false},
		{"no socket", Config{Endpoints: []string{"unix:///no/socket"}}, []string{"unix:///no/socket: ", "no such file", "is etcd running there?"}, false},
		{"refused", Config{Endpoints: []string{"http://" + closed.Addr().String()}}, []string{closed.Addr().String(), "connection refused", "is etcd running there?"}, false},
		{"two refused", Config{Endpoints: []string{"unix:///no/socket", "unix:///no/other"}}, []string{"unix:///no/socket: ", "; unix:///no/other: "}, false},
		{"silent", Config{Endpoints: []string{"http://" + silent.Addr().String()}}, []string{"no answer within 3s"}, false},
		{"no host of that name", Config{Endpoints: []string{"http://etcd.invalid:2379"}}, []string{"etcd.invalid"}, false},
		{"no port", Config{Endpoints: []string{"https://127.0.0.1"}}, []string{"https://127.0.0.1: the port is missing, as in https://127.0.0.1:2379"}, true},
		{"no TLS", Config{Endpoints: []string{"https://" + host(plain.URL)}}, []string{"does not speak TLS; use http://"}, true},
		{"TLS", Config{Endpoints: []string{"http://" + host(secure.URL)}}, []string{"use https://"}, true},
		{"no etcd", Config{Endpoints: []string{plain.URL}}, []string{plain.URL + ": ", "the server is no etcd"}, true},
		{"no etcd behind TLS", Config{Endpoints: []string{secure.URL}, CAFile: ca}, []string{"the server is no etcd"}, true},
		{"unknown authority", Config{Endpoints: []string{secure.URL}}, []string{"signed by unknown authority", "--etcd-cafile"}, true},
		{"another host", Config{Endpoints: []string{"https://localhost:" + strings.Split(host(secure.URL), ":")[1]}, CAFile: ca}, []string{"localhost", "needs another certificate"}, true},
		{"no client certificate", Config{Endpoints: []string{strict.URL}, CAFile: ca}, []string{"certificate required", "--etcd-certfile and --etcd-keyfile"}, true},
		{"no such CA file", Config{Endpoints: []string{secure.URL}, CAFile: "/no/ca.crt"}, []string{"/no/ca.crt"}, true},
		{"no endpoint", Config{Endpoints: []string{"foo"}}, []string{`endpoint "foo"`}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			err := Diagnose(t.Context(), tc.cfg)
			await.Bar(t, tc.name, time.Since(began), 10*time.Second)
			if tc.want == nil {
				if err != nil {
					t.Error(err)
				}
				return
			}
			for _, want := range tc.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q", err, want)
				}
			}
			if err != nil && (Lasting(err) != tc.lasting || strings.Contains(err.Error(), "\n")) {
				t.Errorf("lasting: %v: %q", Lasting(err), err)
			}
		})
	}
}

func pemOf(cert *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
}
