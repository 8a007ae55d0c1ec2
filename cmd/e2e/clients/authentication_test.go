package clients

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"

	"portico/cmd/e2e"
	"portico/internal/testing/await"
	"portico/internal/testing/issuertest"
)

// tokenIsOf checks the user and the groups of a token, by a request and by a review. For "" it must be 401
// and never anonymous.
func tokenIsOf(t *testing.T, up *e2e.Installation, what, token, want string, groups ...string) {
	t.Helper()
	user, err := whoAmI(t.Context(), with(t, up, token))
	review, reviewErr := up.Client(t).AuthenticationV1().TokenReviews().Create(t.Context(),
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	status, authenticated := &authenticationv1.TokenReviewStatus{}, want != ""
	if reviewErr == nil {
		status = &review.Status
	}
	if reviewErr != nil || (err == nil) != authenticated || err != nil && !apierrors.IsUnauthorized(err) || status.Authenticated != authenticated ||
		user.Username != want || status.User.Username != want || !slices.Equal(user.Groups, status.User.Groups) || len(groups) > 0 && !slices.Equal(user.Groups, groups) {
		t.Errorf("%s: user %q of %q, %v; a review says %+v, %v; want %q of %q", what, user.Username, user.Groups, err, status, reviewErr, want, groups)
	}
}

// A handshake names the authorities of clients, of users first: a browser offers no other certificates.
func TestAuthoritiesOfClients(t *testing.T) {
	t.Parallel()
	up := e2e.SharedInstallation(t)
	host := strings.TrimPrefix(up.Endpoint, "https://")
	got, err := certutil.GetClientCANames(host)
	if err != nil || len(got) != 2 || !strings.Contains(got[0], "portico-client-ca") || !strings.Contains(got[1], "portico-front-proxy-ca") {
		t.Errorf("%q, %v", got, err)
	}
}

// directory is a webhook of tokens. A token is the name of its user.
type directory struct {
	mu      sync.Mutex
	users   map[string][]string // the groups of each
	calls   map[string]int
	release chan struct{} // ends calls for the token slow
	server  *httptest.Server
}

// ServeHTTP answers a TokenReview.
func (d *directory) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review authenticationv1.TokenReview
	_ = json.NewDecoder(r.Body).Decode(&review) // it would have no token
	token := review.Spec.Token
	d.mu.Lock()
	d.calls[token]++
	groups, known := d.users[token]
	d.mu.Unlock()
	switch token {
	case "slow":
		<-d.release
	case "silent":
		<-r.Context().Done()
		return
	}
	review.Status = authenticationv1.TokenReviewStatus{Authenticated: known}
	if known {
		review.Status.User = authenticationv1.UserInfo{Username: token, Groups: groups}
	}
	_ = json.NewEncoder(w).Encode(review) // the gateway is gone
}

// listen serves the webhook at an address until the test ends.
func (d *directory) listen(t *testing.T, address string) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	d.server = &httptest.Server{Listener: listener, Config: &http.Server{Handler: d}}
	d.server.Start()
}

func (d *directory) callsOf(token string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls[token]
}

func (d *directory) remove(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.users, name)
}

// With an issuer and a webhook by flags, tokens of the issuer are of the users that the flags name, and all others
// are for the webhook, whose answers are used again for the time of its flag. A wrong token is 401.
func TestTokensByFlags(t *testing.T) {
	t.Parallel()
	e2e.NeedsInstallation(t)
	issuer, err := issuertest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(issuer.Close)
	hook := &directory{calls: map[string]int{}, release: make(chan struct{}), users: map[string][]string{
		"ann": {"staff", "admins"}, "bob": {"staff"}, "slow": {"staff"}, "kept": nil, "left": nil}}
	hook.listen(t, "127.0.0.1:0")
	t.Cleanup(func() { hook.server.Close() })
	dir := t.TempDir()
	ca, kubeconfig := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "webhook.kubeconfig")
	e2e.WriteFile(t, ca, issuer.CA)
	e2e.WriteFile(t, kubeconfig, fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"w","cluster":{"server":%q}}],
"contexts":[{"name":"w","context":{"cluster":"w"}}],"current-context":"w"}`, hook.server.URL))
	up := e2e.Install(t, t.TempDir(), "--oidc-issuer-url="+issuer.URL, "--oidc-client-id="+issuertest.Audience, "--oidc-ca-file="+ca,
		"--oidc-username-claim=name", "--oidc-username-prefix=login:", "--oidc-groups-claim=roles", "--oidc-groups-prefix=role:",
		"--oidc-required-claim=hd=example.com", "--oidc-required-claim=team=blue", "--oidc-signing-algs=RS256,PS256",
		"--authentication-token-webhook-config-file="+kubeconfig, "--authentication-token-webhook-version=v1", "--authentication-token-webhook-cache-ttl=3s")

	tokensOfTheIssuer(t, up, issuer)
	tokensOfTheWebhook(t, up, hook)
	webhookThatDoesNotAnswer(t, up, hook, issuer)
}

// good are claims that the flags of TestTokensByFlags accept, with others replaced.
func good(others issuertest.Claims) issuertest.Claims {
	claims := issuertest.Claims{"name": "jane", "roles": []string{"a", "b"}, "hd": "example.com", "team": "blue"}
	maps.Copy(claims, others)
	return claims
}

// pss returns a token with a PSS signature.
func pss(t *testing.T, i *issuertest.Issuer, alg string, hash crypto.Hash) string {
	t.Helper()
	header := i.Header()
	header["alg"] = alg
	text := issuertest.Unsigned(header, i.Payload(good(nil)))
	digest := hash.New()
	digest.Write([]byte(text))
	signature, err := rsa.SignPSS(rand.Reader, i.Key, hash, digest.Sum(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

func tokensOfTheIssuer(t *testing.T, up *e2e.Installation, issuer *issuertest.Issuer) {
	t.Helper()
	token := issuer.Token(good(nil))
	e2e.Eventually(t, "the issuer's keys are read", func() error { return is(t.Context(), with(t, up, token), "login:jane") })
	groups := []string{"role:a", "role:b", "system:authenticated"}
	tokenIsOf(t, up, "a token", token, "login:jane", groups...)
	tokenIsOf(t, up, "an algorithm of the flag", pss(t, issuer, "PS256", crypto.SHA256), "login:jane", groups...)
	tokenIsOf(t, up, "no groups", issuer.Token(good(issuertest.Claims{"roles": nil})), "login:jane", "system:authenticated")
	for what, token := range map[string]string{
		"another algorithm":         pss(t, issuer, "PS384", crypto.SHA384),
		"another audience":          issuer.Token(good(issuertest.Claims{"aud": "elsewhere"})),
		"a required claim":          issuer.Token(good(issuertest.Claims{"hd": "example.org"})),
		"no required claim":         issuer.Token(good(issuertest.Claims{"team": nil})),
		"no username":               issuer.Token(good(issuertest.Claims{"name": nil})),
		"expired":                   issuer.Token(good(issuertest.Claims{"exp": time.Now().Add(-time.Minute).Unix()})),
		"a signature that is wrong": token + "x",
	} {
		tokenIsOf(t, up, what, token, "")
	}
	u := newExecUser(t, up)
	if out, err := u.kubectl(t, up, token, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"); err != nil || out != "login:jane" {
		t.Errorf("kubectl auth whoami: %v, %s", err, out)
	}
	if out, err := u.kubectl(t, up, token+"x", "get", "configmaps"); err == nil || !strings.Contains(out, "You must be logged in to the server") {
		t.Errorf("kubectl with a wrong token: %v, %s", err, out)
	}
}

// tokensOfTheWebhook checks the users of its tokens, and that an answer is used again as long as the flag says.
func tokensOfTheWebhook(t *testing.T, up *e2e.Installation, hook *directory) {
	t.Helper()
	tokenIsOf(t, up, "a token of the webhook", "ann", "ann", "staff", "admins", "system:authenticated")
	tokenIsOf(t, up, "a token that it does not know", "eve", "")
	for _, token := range []string{"kept", "refused"} {
		begun := time.Now()
		client := with(t, up, token)
		for range 20 {
			if _, err := whoAmI(t.Context(), client); (err == nil) != (token == "kept") {
				t.Errorf("token %s: %v", token, err)
			}
		}
		if n, took := hook.callsOf(token), time.Since(begun); n != 1 && took < 3*time.Second {
			t.Errorf("20 requests with the token %s in %v made %d calls", token, took, n)
		}
	}
	left := with(t, up, "left")
	if err := is(t.Context(), left, "left"); err != nil {
		t.Error(err)
	}
	removed := time.Now()
	hook.remove("left")
	e2e.Eventually(t, "the user that is gone is refused", func() error {
		if err := is(t.Context(), left, "left"); !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("token of the user: %w", err)
		}
		return nil
	})
	await.Bar(t, "the refusal of a user that is gone", time.Since(removed), 6*time.Second)
}

// webhookThatDoesNotAnswer checks that a webhook that is slow, silent or gone concerns its own tokens only.
func webhookThatDoesNotAnswer(t *testing.T, up *e2e.Installation, hook *directory, issuer *issuertest.Issuer) {
	t.Helper()
	jane := with(t, up, issuer.Token(good(nil)))
	short, cancel := context.WithTimeout(t.Context(), await.Patience())
	var requests sync.WaitGroup
	for range 5 {
		requests.Go(func() {
			if err := is(t.Context(), with(t, up, "slow"), "slow"); err != nil {
				t.Errorf("the token that waits: %v", err)
			}
		})
		requests.Go(func() {
			if _, err := whoAmI(short, with(t, up, "silent")); err == nil {
				t.Error("a token without an answer has a user")
			}
		})
	}
	e2e.Eventually(t, "requests wait for the webhook", func() error {
		if slow, silent := hook.callsOf("slow"), hook.callsOf("silent"); slow != 1 || silent != 1 {
			return fmt.Errorf("%d and %d calls", slow, silent)
		}
		return nil
	})
	begun := time.Now()
	if err := is(t.Context(), jane, "login:jane"); err != nil {
		t.Errorf("a token of the issuer: %v", err)
	}
	if err := is(t.Context(), with(t, up, "bob"), "bob"); err != nil {
		t.Errorf("another token of the webhook: %v", err)
	}
	t.Logf("others waited %v", time.Since(begun))
	cancel()
	close(hook.release)
	requests.Wait()
	if n := hook.callsOf("slow"); n != 1 {
		t.Errorf("requests with one token made %d calls", n)
	}

	address := hook.server.Listener.Addr().String()
	hook.server.CloseClientConnections()
	hook.server.Close()
	tokenIsOf(t, up, "a token of the issuer while the webhook is gone", issuer.Token(good(nil)), "login:jane")
	tokenIsOf(t, up, "a token of the webhook that is gone", "zoe", "")
	hook.listen(t, address)
	e2e.Eventually(t, "the webhook is asked again", func() error { return is(t.Context(), with(t, up, "ann"), "ann") })
}
