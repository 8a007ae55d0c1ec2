//go:build strangers

package strangers

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/util/cert"

	"portico/cmd/e2e"
)

// providerMain serves the example provider of the module by TLS on one address, with two clients.
const providerMain = `package main

import (
	"log"
	"log/slog"
	"net/http"
	"os"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
)

func main() {
	address, certificate, key := os.Args[1], os.Args[2], os.Args[3]
	issuer := "https://" + address
	storage.RegisterClients(storage.WebClient("portico", "secret"), storage.WebClient("other", "secret"))
	router := exampleop.SetupServer(issuer, storage.NewStorage(storage.NewUserStore(issuer)), slog.Default(), false)
	log.Fatal(http.ListenAndServeTLS(address, certificate, key, router))
}
`

// callback is where the provider sends browsers back to.
const callback = "http://localhost:9999/auth/callback"

// A user logs in at an OpenID provider as in a browser, by the code flow; kubectl with the token is that user. The
// token of another client of the provider is for another audience, and refused.
func TestOpenIDProvider(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	crt, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair := [2]string{filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")}
	e2e.WriteFile(t, pair[0], string(crt))
	e2e.WriteFile(t, pair[1], string(key))
	module := source(t, "github.com/zitadel/oidc/v3@v3.51.17")
	if err := os.Mkdir(filepath.Join(module, "example/provider"), 0o700); err != nil {
		t.Fatal(err)
	}
	e2e.WriteFile(t, filepath.Join(module, "example/provider/main.go"), providerMain)
	address := "127.0.0.1:" + e2e.FreePort(t, "127.0.0.1")
	start(t, nil, build(t, module, "./example/provider"), address, pair[0], pair[1])

	up := e2e.Install(t, t.TempDir(), "--authentication-config="+providerConfig(t, dir, address, string(crt)))
	p := newProvider("https://"+address, crt)
	e2e.Eventually(t, "the provider serves", func() error {
		res, err := p.browser.Get(p.issuer + "/.well-known/openid-configuration")
		if err == nil {
			res.Body.Close()
		}
		return err
	})
	token := p.logIn(t, "portico")
	kubectl := func(token string) (string, error) {
		return up.Kubectl(t, "--kubeconfig="+os.DevNull, "--server="+up.Endpoint, "--certificate-authority="+filepath.Join(up.Dir, "pki/serving-ca.crt"),
			"--token="+token, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
	}
	e2e.Eventually(t, "the token is of the user", func() error {
		out, err := kubectl(token)
		if err == nil && out != "login:id2" {
			err = fmt.Errorf("user %s", out)
		}
		return err
	})
	for name, bad := range map[string]string{"another audience": p.logIn(t, "other"), "another signature": token[:len(token)-8] + "AAAAAAAA"} {
		if out, err := kubectl(bad); err == nil || !strings.Contains(out, "Unauthorized") {
			t.Errorf("%s: %s, %v", name, out, err)
		}
	}
}

// providerConfig writes an AuthenticationConfiguration with the provider.
func providerConfig(t *testing.T, dir, address, ca string) string {
	t.Helper()
	file := filepath.Join(dir, "authentication.yaml")
	e2e.WriteFile(t, file, fmt.Sprintf(`
apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer: {url: "https://%s", audiences: [portico], certificateAuthority: %q}
  claimMappings: {username: {claim: sub, prefix: "login:"}}
`, address, ca))
	return file
}

// provider is a running provider, and a browser that stops where it is sent back to.
type provider struct {
	issuer  string
	browser *http.Client
}

func newProvider(issuer string, ca []byte) *provider {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &provider{issuer, &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true},
		CheckRedirect: func(r *http.Request, _ []*http.Request) error {
			if strings.HasPrefix(r.URL.String(), callback) {
				return http.ErrUseLastResponse
			}
			return nil
		},
	}}
}

// bodyOf returns a response and its body.
func bodyOf(t *testing.T, res *http.Response, err error) (*http.Response, string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(text)
}

// logIn logs a user of the example in at a client and returns the ID token.
func (p *provider) logIn(t *testing.T, client string) string {
	t.Helper()
	query := url.Values{"client_id": {client}, "redirect_uri": {callback}, "response_type": {"code"}, "scope": {"openid"}, "state": {"s"}}
	res, err := p.browser.Get(p.issuer + "/auth?" + query.Encode())
	page, _ := bodyOf(t, res, err)
	form := url.Values{"username": {"test-user2"}, "password": {"verysecure"}, "id": {page.Request.URL.Query().Get("authRequestID")}}
	res, err = p.browser.PostForm(p.issuer+"/login/username", form)
	back, text := bodyOf(t, res, err)
	to, err := back.Location()
	if err != nil {
		t.Fatalf("the log-in: %v\n%s", err, text)
	}
	form = url.Values{"grant_type": {"authorization_code"}, "code": {to.Query().Get("code")}, "redirect_uri": {callback}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.issuer+"/oauth/token", strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.SetBasicAuth(client, "secret")
	res, err = p.browser.Do(r)
	_, text = bodyOf(t, res, err)
	var answer struct {
		Token string `json:"id_token"`
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil || answer.Token == "" {
		t.Fatalf("no token in %s: %v", text, err)
	}
	return answer.Token
}
