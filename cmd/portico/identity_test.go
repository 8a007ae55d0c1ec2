package main

import (
	"crypto/tls"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"portico/cmd/internal/pki"
)

// foreignCertificate is an administrator's certificate of another installation.
func foreignCertificate(t *testing.T) tls.Certificate {
	t.Helper()
	files, err := pki.Ensure(pki.Config{Dir: filepath.Join(t.TempDir(), "pki")})
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tls.LoadX509KeyPair(files.Admin.CertFile, files.Admin.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// Only the front proxy's certificate makes X-Remote-User count; a user's own
// does not, however privileged.
func TestFrontProxyIdentity(t *testing.T) {
	up := sharedInstallation(t)
	pkiDir := filepath.Join(up.dir, "pki")
	for _, tc := range []struct{ name, cert, want string }{
		{"front proxy", "front-proxy-client", `"username":"jane"`},
		{"core's client certificate", "core", `"username":"system:portico:core"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := rest.AnonymousClientConfig(up.config(t))
			cfg.TLSClientConfig.CertFile = filepath.Join(pkiDir, tc.cert+".crt")
			cfg.TLSClientConfig.KeyFile = filepath.Join(pkiDir, tc.cert+".key")
			client := httpClient(t, cfg)
			req, err := http.NewRequest(http.MethodPost, up.endpoint+"/apis/authentication.k8s.io/v1/selfsubjectreviews",
				strings.NewReader(`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`))
			if err != nil {
				t.Fatal(err)
			}
			req.Header = http.Header{
				"Content-Type": {"application/json"}, "X-Remote-User": {"jane"}, "X-Remote-Group": {"system:authenticated"},
			}
			code, body := send(t, client, req)
			if code != http.StatusCreated || !strings.Contains(body, tc.want) {
				t.Errorf("%d, want %s in %s", code, tc.want, body)
			}
		})
	}
}
