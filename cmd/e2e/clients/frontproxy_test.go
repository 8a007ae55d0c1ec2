//go:build frontproxy

package clients

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"

	"portico/cmd/e2e"
)

// nginxConfig is a proxy that asks for a password and names the user to the gateway in headers of
// its own. DIR, PORT, GATEWAY and PKI are replaced.
const nginxConfig = `
daemon off; master_process off; pid DIR/pid; error_log stderr;
events {}
http {
  access_log off;
  client_body_temp_path DIR/body; proxy_temp_path DIR/proxy; fastcgi_temp_path DIR/f; uwsgi_temp_path DIR/u; scgi_temp_path DIR/s;
  server {
    listen 127.0.0.1:PORT;
    auth_basic login; auth_basic_user_file DIR/users;
    location / {
      proxy_pass GATEWAY;
      proxy_http_version 1.1;
      proxy_ssl_certificate PKI/CLIENT.crt; proxy_ssl_certificate_key PKI/CLIENT.key;
      proxy_ssl_verify on; proxy_ssl_trusted_certificate PKI/serving-ca.crt; proxy_ssl_name localhost;
      proxy_set_header Authorization ""; proxy_set_header X-Login-User $remote_user; proxy_set_header X-Login-Group login:users;
    }
  }
}
`

// A front proxy, nginx, names the users that it has authenticated in headers of its own. Clients
// name no user: neither in these headers through the proxy, nor in X-Remote-*, nor to the gateway itself.
func TestFrontProxy(t *testing.T) {
	t.Parallel()
	up := e2e.Install(t, t.TempDir(), "--requestheader-username-headers=X-Login-User", "--requestheader-group-headers=X-Login-Group")
	proxy := func(certificate string) string {
		dir, port := t.TempDir(), e2e.FreePort(t, "127.0.0.1")
		e2e.WriteFile(t, filepath.Join(dir, "users"), "jane:{PLAIN}secret\n")
		e2e.WriteFile(t, filepath.Join(dir, "conf"), strings.NewReplacer("DIR", dir, "PORT", port, "GATEWAY", up.Endpoint,
			"CLIENT", certificate, "PKI", filepath.Join(up.Dir, "pki")).Replace(nginxConfig))
		cmd := exec.Command("nginx", "-c", filepath.Join(dir, "conf"), "-p", dir)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			cmd.Process.Signal(os.Interrupt)
			_ = cmd.Wait() // it was stopped
		})
		e2e.Eventually(t, "nginx serves", func() error {
			_, _, err := e2e.Ask(t.Context(), http.DefaultClient, http.MethodGet, "http://127.0.0.1:"+port, "")
			return err
		})
		return "http://127.0.0.1:" + port
	}
	trusted, stranger := proxy("front-proxy-client"), proxy("admin")
	const login, forged = "Authorization: Basic amFuZTpzZWNyZXQ=", "mallory"
	for _, tc := range []struct {
		name, url string
		header    []string
		want      string // "code user", with a group of the proxy
	}{
		{"a login", trusted, []string{login}, "201 jane login:users"},
		{"a login with another user", trusted, []string{login, "X-Login-User: " + forged, "X-Login-Group: system:masters"}, "201 jane login:users"},
		{"a login with another user in another header", trusted, []string{login, "X-Remote-User: " + forged, "X-Remote-Group: system:masters", "X-Login-Uid: 0"}, "201 jane login:users"},
		{"no login", trusted, nil, "401"},
		{"a wrong password", trusted, []string{"Authorization: Basic amFuZTp3cm9uZw=="}, "401"},
		{"through a proxy with the certificate of a user", stranger, []string{login}, "201 portico:admin system:masters"},
		{"to the gateway itself", up.Endpoint, []string{"X-Login-User: " + forged, "X-Login-Group: system:masters"}, "403"},
	} {
		client := http.DefaultClient
		if tc.url == up.Endpoint {
			cfg := up.Config(t)
			cfg.CertData, cfg.KeyData, cfg.CertFile, cfg.KeyFile = nil, nil, "", ""
			client = e2e.HTTPClient(t, cfg)
		}
		res, body, err := e2e.Ask(t.Context(), client, http.MethodPost, tc.url+"/apis/authentication.k8s.io/v1/selfsubjectreviews",
			`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`, tc.header...)
		if err != nil {
			t.Fatal(err)
		}
		var review authenticationv1.SelfSubjectReview
		_ = json.Unmarshal([]byte(body), &review) // the status of a refusal is a string
		info := review.Status.UserInfo
		got := fmt.Sprint(res.StatusCode)
		if info.Username != "" {
			groups := slices.DeleteFunc(info.Groups, func(g string) bool { return g == "system:authenticated" })
			got += " " + info.Username + " " + strings.Join(groups, ",")
		}
		if got != tc.want {
			t.Errorf("%s: %s, want %s: %.200s", tc.name, got, tc.want, body)
		}
	}
}
