package clients

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"portico/cmd/e2e"
)

// The gateway trusts X-Remote-User from the front proxy's certificate only, not from that of a
// privileged user.
func TestFrontProxyIdentity(t *testing.T) {
	up := e2e.SharedInstallation(t)
	pkiDir := filepath.Join(up.Dir, "pki")
	for _, tc := range []struct{ name, cert, want string }{
		{"front proxy", "front-proxy-client", `"username":"jane"`},
		{"core's client certificate", "core", `"username":"system:portico:core"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := rest.AnonymousClientConfig(up.Config(t))
			cfg.TLSClientConfig.CertFile = filepath.Join(pkiDir, tc.cert+".crt")
			cfg.TLSClientConfig.KeyFile = filepath.Join(pkiDir, tc.cert+".key")
			client := e2e.HTTPClient(t, cfg)
			req, err := http.NewRequest(http.MethodPost, up.Endpoint+"/apis/authentication.k8s.io/v1/selfsubjectreviews",
				strings.NewReader(`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`))
			if err != nil {
				t.Fatal(err)
			}
			req.Header = http.Header{
				"Content-Type": {"application/json"}, "X-Remote-User": {"jane"}, "X-Remote-Group": {"system:authenticated"},
			}
			code, body := e2e.Send(t, client, req)
			if code != http.StatusCreated || !strings.Contains(body, tc.want) {
				t.Errorf("%d, want %s in %s", code, tc.want, body)
			}
		})
	}
}
