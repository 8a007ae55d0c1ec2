package authn

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/prometheus/client_golang/prometheus"

	"portico/resource"
)

const testIssuer = "https://issuer.example"

func newTestSigner(t *testing.T, key crypto.PrivateKey) *Signer {
	t.Helper()
	s, err := NewSigner(keyFile(t, key), testIssuer)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func keysOf(s *Signer) func() []PublicKey {
	return func() []PublicKey { return []PublicKey{s.PublicKey()} }
}

func goodClaims() TokenClaims {
	now := time.Now()
	return TokenClaims{Namespace: "ns", Name: "robot", UID: "u-1", Audiences: []string{testIssuer}, IssuedAt: now, Expires: now.Add(time.Hour), ID: "id-1"}
}

func sign(t *testing.T, s *Signer, c TokenClaims) string {
	t.Helper()
	token, err := s.Sign(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// Tokens of all algorithms are verified; short RSA keys are rejected.
func TestTokensOfAllAlgorithms(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for alg, key := range map[string]crypto.PrivateKey{
		"RS256": rsaKey, "ES256": newECKey(t, elliptic.P256()), "ES384": newECKey(t, elliptic.P384()), "ES512": newECKey(t, elliptic.P521()),
	} {
		s := newTestSigner(t, key)
		if s.PublicKey().Algorithm != alg {
			t.Errorf("%s: algorithm %s", alg, s.PublicKey().Algorithm)
		}
		a := ServiceAccounts(ServiceAccountConfig{Issuers: []string{testIssuer}, Keys: keysOf(s)})
		user, claimed, err := Bearer(a).Authenticate(bearerRequest(sign(t, s, goodClaims())))
		if err != nil || !claimed {
			t.Fatalf("%s: claimed %v, err %v", alg, claimed, err)
		}
		want := &resource.User{
			Name: "system:serviceaccount:ns:robot", UID: "u-1",
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:ns", resource.GroupAuthenticated},
			Extra:  map[string][]string{"authentication.kubernetes.io/credential-id": {"JTI=id-1"}},
		}
		if !reflect.DeepEqual(user, want) {
			t.Errorf("%s: got %+v", alg, user)
		}
	}
	short, err := rsa.GenerateKey(rand.Reader, 1024)
	if err == nil {
		if _, err = NewSigner(keyFile(t, short), testIssuer); err == nil {
			t.Error("a short RSA key was accepted")
		}
	}
}

// Invalid tokens are errors with the reason.
func TestInvalidTokens(t *testing.T) {
	key := newECKey(t, elliptic.P256())
	s, other := newTestSigner(t, key), newTestSigner(t, newECKey(t, elliptic.P256()))
	a := ServiceAccounts(ServiceAccountConfig{
		Issuers: []string{testIssuer}, Keys: keysOf(s),
		Lookup: func(_ context.Context, namespace, name, _ string) (string, bool, error) {
			switch name {
			case "robot":
				return "u-1", namespace == "ns", nil
			case "broken":
				return "", false, errors.New("no storage")
			}
			return "", false, nil
		},
		Bound: func(_ context.Context, kind, namespace, name string) (string, bool, error) {
			return kind + "-uid", name == "there", nil
		},
	})
	change := func(f func(*TokenClaims)) string {
		c := goodClaims()
		f(&c)
		return sign(t, s, c)
	}
	past := time.Now().Add(-2 * time.Hour)
	foreign := *s
	foreign.issuer = "https://other.example"
	future := tokenClaims{
		RegisteredClaims: jwt.RegisteredClaims{Issuer: testIssuer, Audience: []string{testIssuer}, IssuedAt: jwt.NewNumericDate(time.Now().Add(time.Hour)),
			ExpiresAt: jwt.NewNumericDate(time.Now().Add(2 * time.Hour))},
	}
	early, err := s.sign(future)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, token, want string }{
		{"expired", change(func(c *TokenClaims) { c.IssuedAt, c.Expires = past, past.Add(time.Hour) }), "service account token has expired"},
		{"early", change(func(c *TokenClaims) { c.IssuedAt = time.Now().Add(5 * time.Minute) }), "service account token is not valid yet"},
		{"of the future", early, "service account token is issued in the future"},
		{"audience", change(func(c *TokenClaims) { c.Audiences = []string{"vault"} }), `token audiences ["vault"] is invalid for the target audiences ["https://issuer.example"]`},
		{"another uid", change(func(c *TokenClaims) { c.UID = "u-0" }), "service account UID (u-1) does not match claim (u-0)"},
		{"gone", change(func(c *TokenClaims) { c.Name = "missing" }), `serviceaccounts "missing" not found`},
		{"lookup fails", change(func(c *TokenClaims) { c.Name = "broken" }), "no storage"},
		{"pod gone", change(func(c *TokenClaims) { c.Bound = &BoundObject{"Pod", "p", "Pod-uid"} }), "service account token has been invalidated"},
		{"pod replaced", change(func(c *TokenClaims) { c.Bound = &BoundObject{"Pod", "there", "x"} }), "pod UID (Pod-uid) does not match service account pod ref claim (x)"},
		{"another key", sign(t, other, goodClaims()), "no key with this id"},
		{"another issuer", sign(t, &foreign, goodClaims()), "invalid bearer token"},
		{"no token", "x.y.z", "invalid bearer token"},
		{"opaque", "abcdef", "invalid bearer token"},
		{"alg none", forge(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType), "signing method none is invalid"},
		{"public key as HMAC secret", forge(t, jwt.SigningMethodHS256, []byte(s.PublicKey().ID)), "signing method HS256 is invalid"},
		{"changed", tamper(sign(t, s, goodClaims())), "signature is invalid"},
		{"subject of another", forge(t, jwt.SigningMethodES256, key), "its subject is"},
	} {
		user, claimed, err := Bearer(a).Authenticate(bearerRequest(c.token))
		if claimed || user != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, %v\nwant %s", c.name, claimed, err, c.want)
		}
	}
	bound := change(func(c *TokenClaims) {
		c.Bound, c.Node = &BoundObject{"Pod", "there", "Pod-uid"}, &BoundObject{"Node", "n", "n-1"}
	})
	user, _, err := Bearer(a).Authenticate(bearerRequest(bound))
	if err != nil || user.Extra["authentication.kubernetes.io/pod-uid"][0] != "Pod-uid" || user.Extra["authentication.kubernetes.io/node-name"][0] != "n" {
		t.Errorf("bound: got %+v, %v", user, err)
	}
}

// forge makes a token with the subject of another service account.
func forge(t *testing.T, method jwt.SigningMethod, key any) string {
	t.Helper()
	claims := tokenClaims{
		RegisteredClaims: jwt.RegisteredClaims{Issuer: testIssuer, Subject: "system:serviceaccount:kube-system:admin",
			Audience: []string{testIssuer}, ExpiresAt: jwt.NewNumericDate(time.Now().Add(time.Hour))},
		Private: privateClaims{Namespace: "ns", ServiceAccount: claimRef{Name: "robot", UID: "u-1"}},
	}
	token, err := jwt.NewWithClaims(method, claims).SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// tamper changes the claims of a token and keeps its signature.
func tamper(token string) string {
	parts := strings.Split(token, ".")
	claims, _ := base64.RawURLEncoding.DecodeString(parts[1])
	parts[1] = base64.RawURLEncoding.EncodeToString([]byte(strings.ReplaceAll(string(claims), "robot", "admin")))
	return strings.Join(parts, ".")
}

// Results are cached up to ten seconds and not beyond the expiry of a token; results that may
// change are not cached.
func TestTokenCache(t *testing.T) {
	s := newTestSigner(t, newECKey(t, elliptic.P256()))
	exists, lookups, now := true, 0, time.Now()
	registry := prometheus.NewRegistry()
	a := ServiceAccounts(ServiceAccountConfig{Issuers: []string{testIssuer}, Keys: keysOf(s), Metrics: registry,
		Lookup: func(context.Context, string, string, string) (string, bool, error) {
			lookups++
			return "u-1", exists, nil
		}})
	a.now = func() time.Time { return now }
	a.Follow("ServiceAccount", true)
	claims := goodClaims()
	claims.Expires = now.Add(13 * time.Second)
	token := sign(t, s, claims)
	good := func() bool { _, claimed, _ := a.AuthenticateToken(t.Context(), token); return claimed }
	if first, second := good(), good(); !first || !second || lookups != 1 {
		t.Fatalf("%d lookups for two requests", lookups)
	}
	now = now.Add(10 * time.Second)
	if !good() || lookups != 2 {
		t.Errorf("%d lookups after ten seconds", lookups)
	}
	now = now.Add(4 * time.Second)
	if good() {
		t.Error("a result was cached beyond the expiry of its token")
	}
	token, exists = sign(t, s, goodClaims()), false
	if good() {
		t.Error("a token of a deleted service account was accepted")
	}
	if exists = true; !good() {
		t.Error("a result that can change was cached")
	}
	if got, want := counted(t, registry), map[string]float64{
		"authentication_token_cache_request_total hit": 1, "authentication_token_cache_request_total miss": 5,
		"authentication_token_cache_fetch_total ok": 3, "authentication_token_cache_fetch_total error": 2,
	}; !reflect.DeepEqual(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
}

// counted returns counters by name and status.
func counted(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, label := range m.GetLabel() {
				name += " " + label.GetValue()
			}
			if count := m.GetCounter().GetValue(); count > 0 {
				out[name] = count
			}
		}
	}
	return out
}

// A token is checked against the wanted audiences.
func TestAudiences(t *testing.T) {
	s := newTestSigner(t, newECKey(t, elliptic.P256()))
	a := ServiceAccounts(ServiceAccountConfig{Issuers: []string{testIssuer}, Keys: keysOf(s)})
	claims := goodClaims()
	claims.Audiences = []string{"vault", "ci"}
	token := sign(t, s, claims)
	if _, claimed, _ := a.AuthenticateToken(t.Context(), token); claimed {
		t.Error("a token for other audiences was accepted")
	}
	asked := &Audiences{Wanted: []string{"ci", "x", "vault"}}
	_, claimed, err := a.AuthenticateToken(WithAudiences(t.Context(), asked), token)
	if !claimed || err != nil || !reflect.DeepEqual(asked.Matched, []string{"ci", "vault"}) {
		t.Errorf("got %v, %v, matched %v", claimed, err, asked.Matched)
	}
}

// A token is accepted until an object that it depends on changes, and is checked again then, also
// if that happens while it is being checked. While changes are not reported, it is checked again
// after a second.
func TestChangesEndTokens(t *testing.T) {
	t.Parallel()
	s := newTestSigner(t, newECKey(t, elliptic.P256()))
	var exists, lookups int
	during := func() {}
	uid := func(string) (string, bool, error) { lookups++; during(); return "u-1", lookups <= exists, nil }
	a := ServiceAccounts(ServiceAccountConfig{Issuers: []string{testIssuer}, Keys: keysOf(s),
		Bound: func(_ context.Context, kind, _, _ string) (string, bool, error) { return uid(kind) }})
	now := time.Now()
	a.now = func() time.Time { return now }
	claims := goodClaims()
	claims.Bound = &BoundObject{"Pod", "p", "u-1"}
	token := sign(t, s, claims)
	for _, step := range []struct {
		name string
		do   func()
		// lookups are the checks that the next use takes.
		lookups int
	}{
		{"first use", func() {}, 1},
		{"nothing", func() {}, 0},
		{"a second without reports", func() { now = now.Add(unfollowedTTL) }, 1},
		{"reports begin", func() { a.Follow("Pod", true); a.Follow("ServiceAccount", true) }, 1},
		{"a second with reports", func() { now = now.Add(unfollowedTTL) }, 0},
		{"another pod", func() { a.Changed(Object{"Pod", "ns", "q"}) }, 0},
		{"a secret of that name", func() { a.Changed(Object{"Secret", "ns", "p"}) }, 0},
		{"the pod", func() { a.Changed(Object{"Pod", "ns", "p"}) }, 1},
		{"the account", func() { a.Changed(Object{"ServiceAccount", "ns", "robot"}) }, 1},
		{"reports end", func() { a.Follow("Pod", false) }, 1},
		{"reports begin again", func() { a.Follow("Pod", true) }, 1},
		{"while it is checked", func() {
			a.Changed(Object{"Pod", "ns", "p"})
			during = func() { during = func() {}; a.Changed(Object{"Pod", "ns", "p"}) }
		}, 1},
		{"the use after that", func() {}, 1},
	} {
		step.do()
		lookups, exists = 0, 100
		if _, claimed, err := a.AuthenticateToken(t.Context(), token); !claimed || lookups != step.lookups {
			t.Errorf("%s: claimed %v, %v, after %d checks, want %d", step.name, claimed, err, lookups, step.lookups)
		}
	}
	a.Changed(Object{"Pod", "ns", "p"})
	exists = 0
	if _, claimed, err := a.AuthenticateToken(t.Context(), token); claimed || err == nil {
		t.Error("the token of a deleted pod was accepted")
	}
	if now = now.Add(time.Hour); len(a.cache.lookups) > 2 {
		t.Errorf("%d objects are remembered for one token", len(a.cache.lookups))
	}
}

// No use of a token that begins after the report of a deletion succeeds, however many uses are under
// way, and whatever they have looked up.
func TestChangesWhileTokensAreUsed(t *testing.T) {
	t.Parallel()
	s := newTestSigner(t, newECKey(t, elliptic.P256()))
	var exists atomic.Bool
	a := ServiceAccounts(ServiceAccountConfig{Issuers: []string{testIssuer}, Keys: keysOf(s), Bound: func(context.Context, string, string, string) (string, bool, error) {
		return "u-1", exists.Load(), nil
	}})
	a.Follow("Pod", true)
	a.Follow("ServiceAccount", true)
	claims := goodClaims()
	claims.Bound = &BoundObject{"Pod", "p", "u-1"}
	token := sign(t, s, claims)
	ctx, cancel := context.WithCancel(t.Context())
	var users sync.WaitGroup
	for range 4 {
		users.Go(func() {
			for ctx.Err() == nil {
				_, _, _ = a.AuthenticateToken(ctx, token)
			}
		})
	}
	good := func() bool { _, claimed, _ := a.AuthenticateToken(t.Context(), token); return claimed }
	for n := range 200 {
		if exists.Store(true); !good() {
			t.Fatalf("round %d: a good token is refused", n)
		}
		exists.Store(false)
		if a.Changed(Object{"Pod", "ns", "p"}); good() {
			t.Fatalf("round %d: the token of a deleted pod is accepted", n)
		}
	}
	cancel()
	users.Wait()
}

// A token of any of the issuers is accepted; the first signs.
func TestSeveralIssuers(t *testing.T) {
	t.Parallel()
	s := newTestSigner(t, newECKey(t, elliptic.P256()))
	a := ServiceAccounts(ServiceAccountConfig{Issuers: []string{"https://new.example", testIssuer}, Keys: keysOf(s)})
	for issuer, want := range map[string]bool{testIssuer: true, "https://new.example": true, "https://other.example": false} {
		other := *s
		other.issuer = issuer
		for _, audience := range []string{testIssuer, "https://new.example"} {
			claims := goodClaims()
			claims.Audiences = []string{audience}
			if _, claimed, _ := a.AuthenticateToken(t.Context(), sign(t, &other, claims)); claimed != want {
				t.Errorf("issuer %s, audience %s: claimed %v", issuer, audience, claimed)
			}
		}
	}
}

// A token of extended lifetime is noted in the audit event of each request, and counted, once it
// should have been replaced.
func TestStaleTokens(t *testing.T) {
	t.Parallel()
	s := newTestSigner(t, newECKey(t, elliptic.P256()))
	registry := prometheus.NewRegistry()
	a := ServiceAccounts(ServiceAccountConfig{Issuers: []string{testIssuer}, Keys: keysOf(s), Metrics: registry})
	now := time.Now()
	a.now = func() time.Time { return now }
	claims := goodClaims()
	claims.WarnAfter, claims.Expires = now.Add(time.Minute), now.Add(time.Hour)
	token := sign(t, s, claims)
	for _, step := range []struct {
		after time.Duration
		note  string
	}{{0, ""}, {2 * time.Minute, "subject: system:serviceaccount:ns:robot, seconds after warning threshold: 60"}, {0, "subject: system:serviceaccount:ns:robot, seconds after warning threshold: 60"}} {
		now = now.Add(step.after)
		notes := &Notes{}
		_, claimed, err := a.AuthenticateToken(context.WithValue(t.Context(), NotesKey{}, notes), token)
		if got := notes.Annotations["authentication.k8s.io/stale-token"]; !claimed || got != step.note {
			t.Errorf("claimed %v, %v, noted %q, want %q", claimed, err, got, step.note)
		}
	}
	if got := counted(t, registry); got["serviceaccount_stale_tokens_total"] != 1 || got["serviceaccount_valid_tokens_total"] != 1 {
		t.Errorf("counted %v, want one stale and one valid token", got)
	}
}

// A changed file of the signing key is read again, and tokens of both keys are good while both
// verify.
func TestSigningKeyIsReadAgain(t *testing.T) {
	t.Parallel()
	first, second := newECKey(t, elliptic.P256()), newECKey(t, elliptic.P256())
	file := keyFile(t, first)
	s, err := NewSigner(file, testIssuer)
	if err != nil {
		t.Fatal(err)
	}
	alwaysCheck(s.key)
	old := s.PublicKey()
	before := sign(t, s, goodClaims())
	next, err := os.ReadFile(keyFile(t, second))
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, file, next)
	after := sign(t, s, goodClaims())
	if s.PublicKey().ID == old.ID || !s.PublicKey().Signed(after) || !old.Signed(before) {
		t.Error("the key was not read again")
	}
	a := ServiceAccounts(ServiceAccountConfig{Issuers: []string{testIssuer}, Keys: func() []PublicKey { return []PublicKey{s.PublicKey(), old} }})
	for _, token := range []string{before, after} {
		if _, claimed, err := a.AuthenticateToken(t.Context(), token); !claimed {
			t.Error(err)
		}
	}
}

// The documents have the issuer and its keys; an issuer without an https URL has none.
func TestIssuerDiscovery(t *testing.T) {
	key := newECKey(t, elliptic.P521())
	s := newTestSigner(t, key)
	h := IssuerDiscovery(testIssuer, "", keysOf(s))
	get := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w
	}
	w := get(PathOpenIDConfiguration)
	const want = `{"issuer":"https://issuer.example","jwks_uri":"https://issuer.example/openid/v1/jwks","response_types_supported":["id_token"],` +
		`"subject_types_supported":["public"],"id_token_signing_alg_values_supported":["ES512"]}`
	if w.Body.String() != want || w.Header().Get("Content-Type") != "application/json" || w.Header().Get("Cache-Control") != "public, max-age=3600" {
		t.Errorf("got %v %s", w.Header(), w.Body)
	}
	w = get(PathKeySet)
	var set struct{ Keys []webKey }
	if err := json.Unmarshal(w.Body.Bytes(), &set); err != nil || len(set.Keys) != 1 || w.Header().Get("Content-Type") != "application/jwk-set+json" {
		t.Fatalf("got %v %s", w.Header(), w.Body)
	}
	x, _ := base64.RawURLEncoding.DecodeString(set.Keys[0].X)
	y, _ := base64.RawURLEncoding.DecodeString(set.Keys[0].Y)
	public, err := ecdsa.ParseUncompressedPublicKey(elliptic.P521(), append(append([]byte{4}, x...), y...))
	if err != nil || !public.Equal(key.Public()) || set.Keys[0].ID != s.PublicKey().ID || set.Keys[0].Curve != "P-521" {
		t.Errorf("the published key is another one: %+v, %v", set.Keys[0], err)
	}
	h = IssuerDiscovery(testIssuer, "https://keys.example/jwks", keysOf(s))
	if w = get(PathOpenIDConfiguration); !strings.Contains(w.Body.String(), `"jwks_uri":"https://keys.example/jwks"`) {
		t.Errorf("got %s", w.Body)
	}
	for _, issuer := range []string{"http://x", "https://x?q=1", "https://x#f", "portico", "https://x?"} {
		h = IssuerDiscovery(issuer, "", keysOf(s))
		if code := get(PathKeySet).Code; code != 404 {
			t.Errorf("issuer %s: got %d", issuer, code)
		}
	}
}
