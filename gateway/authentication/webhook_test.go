package authentication

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"portico/internal/testing/await"
	"portico/internal/testing/issuertest"
	"portico/resource"
	"portico/resource/authn"
)

// hook starts an authentication with a webhook that answers by a function.
func hook(t *testing.T, answer func(w http.ResponseWriter, r *http.Request, review *authenticationv1.TokenReview)) *running {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review authenticationv1.TokenReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		answer(w, r, &review)
	}))
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "webhook.kubeconfig")
	write(t, path, kubeconfig(server.URL))
	return start(t, "", Config{APIAudiences: []string{"api"}, AnonymousAuth: true, Webhook: Webhook{ConfigFile: path, Version: "v1", CacheTTL: time.Minute}})
}

// kubeconfig is the file of a webhook.
func kubeconfig(url string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"w","cluster":{"server":%q}}],"contexts":[{"name":"w","context":{"cluster":"w"}}],"current-context":"w"}`, url)
}

// The user of a token is the webhook's answer, which requests with the same token share.
func TestWebhook(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	r := hook(t, func(w http.ResponseWriter, _ *http.Request, review *authenticationv1.TokenReview) {
		calls.Add(1)
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: review.Spec.Token == "good", User: authenticationv1.UserInfo{
			Username: "jane", UID: "7", Groups: []string{"a"}, Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}},
		}}
		if review.Spec.Token == "broken" {
			review.Status.Error = "the directory is away"
		}
		_ = json.NewEncoder(w).Encode(review)
	})
	want := &resource.User{Name: "jane", UID: "7", Groups: []string{"a", "system:authenticated"}, Extra: map[string][]string{"k": {"v"}}}
	var clients sync.WaitGroup
	for range 20 {
		clients.Go(func() {
			if user, err := r.ask("good"); err != nil || !reflect.DeepEqual(user, want) {
				t.Errorf("user %+v, error %v; want %+v", user, err, want)
			}
		})
	}
	clients.Wait()
	if n := calls.Load(); n != 1 {
		t.Errorf("%d calls for one token", n)
	}
	r.refuses(t, "a token that the webhook does not know", "bad", "invalid bearer token")
	r.refuses(t, "a webhook that fails", "broken", "the directory is away")
}

// A review for audiences that neither the webhook nor the server has is no user.
func TestAudiencesOfWebhooks(t *testing.T) {
	t.Parallel()
	r := hook(t, func(w http.ResponseWriter, _ *http.Request, review *authenticationv1.TokenReview) {
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "jane"}}
		if review.Spec.Token == "two" {
			review.Status.Audiences = []string{"vault"}
		}
		_ = json.NewEncoder(w).Encode(review)
	})
	for _, tc := range []struct {
		token   string
		wanted  string
		matched []string
	}{{"one", "api", []string{"api"}}, {"one", "vault", nil}, {"two", "vault", []string{"vault"}}, {"two", "api", nil}} {
		audiences := &authn.Audiences{Wanted: []string{tc.wanted}}
		req := httptest.NewRequest(http.MethodGet, "/", nil).WithContext(authn.WithAudiences(t.Context(), audiences))
		req.Header.Set("Authorization", "Bearer "+tc.token)
		if _, ok, _ := r.Authenticate(req); ok != (tc.matched != nil) || !reflect.DeepEqual(audiences.Matched, tc.matched) {
			t.Errorf("token %s for %s: authenticated %v with %q, want %q", tc.token, tc.wanted, ok, audiences.Matched, tc.matched)
		}
	}
}

// A webhook that answers without end, with nonsense or without a name gives an error, and no user.
func TestWebhookThatLies(t *testing.T) {
	t.Parallel()
	var sent atomic.Int64
	r := hook(t, func(w http.ResponseWriter, _ *http.Request, review *authenticationv1.TokenReview) {
		switch review.Spec.Token {
		case "huge":
			block := strings.Repeat(" ", 64<<10)
			for sent.Load() < 100<<20 {
				n, err := io.WriteString(w, block)
				if err != nil {
					return
				}
				sent.Add(int64(n))
			}
		case "nonsense":
			_, _ = io.WriteString(w, "{") // the client is gone
		case "nameless":
			_, _ = io.WriteString(w, `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","status":{"authenticated":true}}`)
		}
	})
	r.refuses(t, "an answer without end", "huge", "the response has more than 1048576 bytes")
	if n := sent.Load(); n > 50<<20 {
		t.Errorf("%d bytes were taken of an answer without end", n)
	}
	r.refuses(t, "nonsense", "nonsense", "")
	r.refuses(t, "a user without a name", "nameless", "the user of the token has no name")
}

// A request that ends does not wait for a webhook that does not answer.
func TestWebhookThatHangs(t *testing.T) {
	t.Parallel()
	asked, hang := make(chan struct{}), make(chan struct{})
	r := hook(t, func(http.ResponseWriter, *http.Request, *authenticationv1.TokenReview) {
		close(asked)
		<-hang
	})
	t.Cleanup(func() { close(hang) }) // before the server is closed
	ctx, cancel := context.WithCancel(t.Context())
	req := httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx)
	req.Header.Set("Authorization", "Bearer x")
	go func() {
		<-asked
		cancel()
	}()
	if _, ok, err := r.Authenticate(req); ok || err == nil {
		t.Errorf("authenticated %v, error %v", ok, err)
	}
}

// A webhook and an issuer that redirect are not followed: nothing reaches where they lead, and no user comes of it.
func TestRedirectsOfWebhooksAndIssuers(t *testing.T) {
	t.Parallel()
	elsewhere := newIssuer(t)
	r := hook(t, func(w http.ResponseWriter, r *http.Request, _ *authenticationv1.TokenReview) {
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	})
	r.refuses(t, "a token of a webhook that redirects", "token", "redirects are not followed")
	var asked atomic.Int64
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		http.Redirect(w, r, elsewhere.URL+r.URL.Path, http.StatusFound)
	}))
	t.Cleanup(server.Close)
	redirecting := &issuertest.Issuer{URL: server.URL, CA: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))}
	r = start(t, configuration(entry(redirecting, "[portico]", prefixed)), Config{AnonymousAuth: true})
	await.Until(t, "the issuer is asked", func() bool { return asked.Load() > 1 })
	if err := r.issuers.current.Load().unready(); err == nil || elsewhere.Requests.Load() > 0 {
		t.Errorf("an issuer that redirects: unready: %v, and %d requests arrived elsewhere", err, elsewhere.Requests.Load())
	}
}
