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
	"reflect"
	"strings"
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
		a := ServiceAccounts(ServiceAccountConfig{Issuer: testIssuer, Keys: keysOf(s)})
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
		Issuer: testIssuer, Keys: keysOf(s),
		Lookup: func(_ context.Context, namespace, name string) (string, bool, error) {
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
	for _, c := range []struct{ name, token, want string }{
		{"expired", change(func(c *TokenClaims) { c.IssuedAt, c.Expires = past, past.Add(time.Hour) }), "service account token has expired"},
		{"early", change(func(c *TokenClaims) { c.IssuedAt = time.Now().Add(5 * time.Minute) }), "service account token is not valid yet"},
		{"audience", change(func(c *TokenClaims) { c.Audiences = []string{"vault"} }), `token audiences ["vault"] is invalid for the target audiences ["https://issuer.example"]`},
		{"another uid", change(func(c *TokenClaims) { c.UID = "u-0" }), "service account UID (u-1) does not match claim (u-0)"},
		{"gone", change(func(c *TokenClaims) { c.Name = "missing" }), "service account token has been invalidated"},
		{"lookup fails", change(func(c *TokenClaims) { c.Name = "broken" }), "no storage"},
		{"pod gone", change(func(c *TokenClaims) { c.Bound = &BoundObject{"Pod", "p", "Pod-uid"} }), "service account token has been invalidated"},
		{"pod replaced", change(func(c *TokenClaims) { c.Bound = &BoundObject{"Pod", "there", "x"} }), "Pod UID (Pod-uid) does not match service account Pod ref claim (x)"},
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
	a := ServiceAccounts(ServiceAccountConfig{Issuer: testIssuer, Keys: keysOf(s), Metrics: registry,
		Lookup: func(context.Context, string, string) (string, bool, error) { lookups++; return "u-1", exists, nil }})
	a.now = func() time.Time { return now }
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
			out[f.GetName()+" "+m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
		}
	}
	return out
}

// A token is checked against the wanted audiences.
func TestAudiences(t *testing.T) {
	s := newTestSigner(t, newECKey(t, elliptic.P256()))
	a := ServiceAccounts(ServiceAccountConfig{Issuer: testIssuer, Keys: keysOf(s)})
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

// The documents have the issuer and its keys; an issuer without an https URL has none.
func TestIssuerDiscovery(t *testing.T) {
	key := newECKey(t, elliptic.P521())
	s := newTestSigner(t, key)
	h := IssuerDiscovery(testIssuer, keysOf(s))
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
	for _, issuer := range []string{"http://x", "https://x?q=1", "https://x#f", "portico", "https://x?"} {
		h = IssuerDiscovery(issuer, keysOf(s))
		if code := get(PathKeySet).Code; code != 404 {
			t.Errorf("issuer %s: got %d", issuer, code)
		}
	}
}
