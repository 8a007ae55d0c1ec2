package client

import (
	"crypto/tls"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource/authn"
)

// trusting returns a Gateway that trusts the certificate of the server.
func trusting(t *testing.T, server *httptest.Server) Gateway {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.crt")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(file, ca, 0o600); err != nil {
		t.Fatal(err)
	}
	return Gateway{URL: server.URL, CAFile: file}
}

func TestGatewayCertificateIsVerified(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	trusted := trusting(t, server)
	otherName := trusted
	otherName.URL = strings.Replace(server.URL, "127.0.0.1", "127.0.0.2", 1)
	ask := func(cfg Gateway) error {
		transport, err := cfg.Transport()
		if err != nil {
			t.Fatal(err)
		}
		res, err := New(Config{BaseURL: cfg.URL, Transport: transport}).Do(t.Context(), http.MethodGet, "/apis", nil, nil)
		if err == nil {
			res.Body.Close()
		}
		return err
	}
	if err := ask(trusted); !apierrors.IsNotFound(err) {
		t.Errorf("a gateway with a trusted certificate: %v, want its 404", err)
	}
	if err := ask(Gateway{URL: server.URL}); err == nil || apierrors.IsNotFound(err) {
		t.Errorf("a gateway with an unknown certificate: %v", err)
	}
	config := verifyAs(t, server, trusted.CAFile, "127.0.0.2")
	if config == nil || !strings.Contains(config.Error(), "127.0.0.2") {
		t.Errorf("a certificate for another address: %v", config)
	}
}

// verifyAs shakes hands with the server and checks its certificate for host.
func verifyAs(t *testing.T, server *httptest.Server, caFile, host string) error {
	t.Helper()
	ca, err := authn.NewCAFile(caFile)
	if err != nil {
		t.Fatal(err)
	}
	config := new(tls.Config)
	ca.VerifyServer(config, host)
	conn, err := tls.Dial("tcp", server.Listener.Addr().String(), config)
	if err == nil {
		conn.Close()
	}
	return err
}
