package authentication

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"portico/internal/testing/await"
	"portico/internal/testing/issuertest"
)

// Thousands of forged tokens, each with a key of its own that nothing knows, make a few requests to their
// issuer. Tokens of the known key are accepted meanwhile, and those of a new key after a second.
func TestForgedTokensRequestFewKeys(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	r := start(t, configuration(entry(i, "[portico]", prefixed)), Config{AnonymousAuth: true}).ready(t)
	r.accepts(t, i.Token(nil), "oidc:jane")
	begin, before := time.Now(), i.Requests.Load()

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var attackers sync.WaitGroup
	var forged atomic.Int64
	for range 4 {
		attackers.Go(func() {
			for ctx.Err() == nil {
				token := issuertest.Unsigned(issuertest.Claims{"alg": "RS256", "kid": fmt.Sprint(forged.Add(1))}, i.Payload(nil)) + ".AAAA"
				if user, err := r.ask(token); err == nil {
					t.Errorf("a forged token is of %v", user)
				}
			}
		})
	}
	await.Until(t, "2,000 forged tokens are refused", func() bool { return forged.Load() > 2000 })
	if user, err := r.ask(i.Token(issuertest.Claims{"sub": "john"})); err != nil || user.Name != "oidc:john" {
		t.Errorf("token of the known key: user %v, error %v", user, err)
	}
	next, err := i.Rotate()
	if err != nil {
		t.Fatal(err)
	}
	rotated := time.Now()
	r.accepts(t, next.Token(nil), "oidc:jane")
	took := time.Since(rotated)
	cancel()
	attackers.Wait()

	requests, most := i.Requests.Load()-before, int64(keyBurst+time.Since(begin).Seconds()*float64(keyRate))
	t.Logf("%d forged tokens in %v made %d requests; the new key was accepted after %v", forged.Load(), time.Since(begin), requests, took)
	if requests > most {
		t.Errorf("%d requests, want at most %d", requests, most)
	}
	await.Bar(t, "the acceptance of the new key", took, 5*time.Second)
}

// While requests for the keys of an issuer are refused, its discovery document is read and the groups of its
// tokens are asked for, as often as tokens name a server for them.
func TestOtherRequestsToIssuersAreNotBounded(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	groups := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, i.Token(issuertest.Claims{"groups": []string{"a"}})) // the client is gone
	}))
	t.Cleanup(groups.Close)
	text := configuration(entry(i, "[portico]", `  claimMappings: {username: {claim: sub, prefix: "oidc:"}, groups: {claim: groups, prefix: "g:"}}`))
	r := start(t, text, Config{}).ready(t)
	user := func(name string) string {
		return i.Token(issuertest.Claims{"sub": name, "_claim_names": issuertest.Claims{"groups": "x"}, "_claim_sources": issuertest.Claims{"x": issuertest.Claims{"endpoint": groups.URL}}})
	}
	r.accepts(t, user("jane"), "oidc:jane")
	await.Until(t, "requests for keys are refused", func() bool {
		_, err := r.ask(i.Sign(issuertest.Claims{"alg": "RS256", "kid": "unknown"}, i.Payload(nil)))
		return err != nil && strings.Contains(err.Error(), errKeysRequested.Error())
	})
	for n := range 10 * keyBurst {
		if user, err := r.ask(user(fmt.Sprint(n))); err != nil || !slices.Contains(user.Groups, "g:a") {
			t.Errorf("user %+v, error %v; want one of group g:a", user, err)
		}
	}
	r.change(t, strings.ReplaceAll(text, "oidc:", "panda:"))
	r.accepts(t, i.Token(issuertest.Claims{"groups": nil}), "panda:jane")
}
