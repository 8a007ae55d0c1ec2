package authn

import (
	"context"
	"crypto/elliptic"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"portico/resource"
)

// secretsOf is a lookup of one Secret, ns/s.
func secretsOf(secret *TokenSecret, err error) func(context.Context, string, string) (*TokenSecret, error) {
	return func(_ context.Context, namespace, name string) (*TokenSecret, error) {
		if namespace != "ns" || name != "s" {
			return nil, nil
		}
		return secret, err
	}
}

// The token of a Secret is good for its service account as long as the Secret has it and both
// exist. Every other token with that issuer is refused.
func TestTokensOfSecrets(t *testing.T) {
	t.Parallel()
	s, other := newTestSigner(t, newECKey(t, elliptic.P256())), newTestSigner(t, newECKey(t, elliptic.P256()))
	legacy := func(by *Signer, namespace, secret, account, uid string) string {
		token, err := by.SignLegacy(namespace, secret, account, uid)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	signed := func(change func(*tokenClaims)) string {
		c := tokenClaims{
			RegisteredClaims: jwt.RegisteredClaims{Issuer: legacyIssuer, Subject: "system:serviceaccount:ns:robot"},
			legacyClaims:     legacyClaims{Namespace: "ns", SecretName: "s", AccountName: "robot", AccountUID: "u-1"},
		}
		change(&c)
		token, err := s.sign(c)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	good := legacy(s, "ns", "s", "robot", "u-1")
	exists := func(context.Context, string, string, string) (string, bool, error) { return "u-1", true, nil }
	for name, c := range map[string]struct {
		token  string
		secret *TokenSecret // nil: one with the token
		lookup func(context.Context, string, string, string) (string, bool, error)
		err    error
		wanted []string
		want   string // "": the token is good; "-": it is not claimed
	}{
		"good":                   {token: good},
		"for this server":        {token: good, wanted: []string{"else", testIssuer}},
		"for another audience":   {token: good, wanted: []string{"else"}, want: "is invalid for the target audiences"},
		"no secret":              {token: legacy(s, "ns", "none", "robot", "u-1"), want: "Token has been invalidated"},
		"another namespace":      {token: legacy(s, "b", "s", "robot", "u-1"), want: "Token has been invalidated"},
		"unknown secret":         {token: good, err: errors.New("away"), want: "away"},
		"another token":          {token: good, secret: &TokenSecret{Token: []byte(legacy(s, "ns", "s", "robot", "u-1"))}, want: "Token does not match server's copy"},
		"a secret without":       {token: good, secret: &TokenSecret{}, want: "Token does not match server's copy"},
		"marked invalid":         {token: good, secret: &TokenSecret{Token: []byte(good), InvalidSince: "2026-01-01"}, want: "in secret ns/s for service account ns/robot has been marked invalid"},
		"no account":             {token: good, lookup: func(context.Context, string, string, string) (string, bool, error) { return "", false, nil }, want: `serviceaccounts "robot" not found`},
		"another account":        {token: good, lookup: func(context.Context, string, string, string) (string, bool, error) { return "u-2", true, nil }, want: "does not match claim"},
		"another key":            {token: legacy(other, "ns", "s", "robot", "u-1"), want: "no key with this id"},
		"another subject":        {token: signed(func(c *tokenClaims) { c.Subject = "system:serviceaccount:ns:admin" }), want: "sub claim is invalid"},
		"without account":        {token: signed(func(c *tokenClaims) { c.AccountUID = "" }), want: "serviceAccountUID claim is missing"},
		"without secret":         {token: signed(func(c *tokenClaims) { c.SecretName = "" }), want: "secretName claim is missing"},
		"expired":                {token: signed(func(c *tokenClaims) { c.ExpiresAt = jwt.NewNumericDate(time.Now().Add(-time.Hour)) }), want: "has expired"},
		"the claims of others":   {token: signed(func(c *tokenClaims) { c.legacyClaims = legacyClaims{}; c.Private.Namespace = "ns" }), want: "namespace claim is missing"},
		"the issuer of others":   {token: signed(func(c *tokenClaims) { c.Issuer = testIssuer }), want: "has no expiry"},
		"another issuer":         {token: signed(func(c *tokenClaims) { c.Issuer = "https://else" }), want: "-"},
		"with the pod of others": {token: signed(func(c *tokenClaims) { c.Private.Pod = &claimRef{Name: "p", UID: "p-1"} })},
	} {
		used := false
		secret := c.secret
		if secret == nil {
			secret = &TokenSecret{Token: []byte(c.token), Used: func(context.Context) { used = true }}
		}
		lookup := c.lookup
		if lookup == nil {
			lookup = exists
		}
		a := ServiceAccounts(ServiceAccountConfig{Issuers: []string{testIssuer}, Keys: keysOf(s), Lookup: lookup, Secret: secretsOf(secret, c.err)})
		ctx := t.Context()
		if c.wanted != nil {
			ctx = WithAudiences(ctx, &Audiences{Wanted: c.wanted})
		}
		user, claimed, err := a.AuthenticateToken(ctx, c.token)
		switch {
		case c.want == "-" && !claimed && err == nil, c.want != "" && !claimed && err != nil && strings.Contains(err.Error(), c.want):
			if used {
				t.Errorf("%s: the use of a refused token is recorded", name)
			}
		case c.want == "" && claimed && err == nil:
			want := &resource.User{
				Name: "system:serviceaccount:ns:robot", UID: "u-1", Extra: map[string][]string{},
				Groups: []string{"system:serviceaccounts", "system:serviceaccounts:ns", resource.GroupAuthenticated},
			}
			if !reflect.DeepEqual(user, want) || !used {
				t.Errorf("%s: got %+v, recorded %v", name, user, used)
			}
		default:
			t.Errorf("%s: user %v, claimed %v, err %v, want %q", name, user, claimed, err, c.want)
		}
	}
}

// A server without Secrets claims no tokens of Secrets, also if other tokens have their issuer.
func TestTokensOfSecretsWithoutLookup(t *testing.T) {
	t.Parallel()
	s := newTestSigner(t, newECKey(t, elliptic.P256()))
	token, err := s.SignLegacy("ns", "s", "robot", "u-1")
	if err != nil {
		t.Fatal(err)
	}
	for issuer, refused := range map[string]bool{testIssuer: false, legacyIssuer: true} {
		a := ServiceAccounts(ServiceAccountConfig{Issuers: []string{issuer}, Keys: keysOf(s)})
		if user, claimed, err := a.AuthenticateToken(t.Context(), token); claimed || (err != nil) != refused {
			t.Errorf("issuer %s: user %v, claimed %v, err %v", issuer, user, claimed, err)
		}
	}
	// Other tokens of that issuer are as ever.
	s.issuer = legacyIssuer
	c := goodClaims()
	c.Audiences = []string{legacyIssuer}
	a := ServiceAccounts(ServiceAccountConfig{Issuers: []string{legacyIssuer}, Keys: keysOf(s), Secret: secretsOf(nil, nil)})
	if _, claimed, err := a.AuthenticateToken(t.Context(), sign(t, s, c)); !claimed {
		t.Error(err)
	}
	c.Expires = time.Now().Add(-time.Minute)
	c.IssuedAt = time.Now().Add(-time.Hour)
	if _, claimed, err := a.AuthenticateToken(t.Context(), sign(t, s, c)); claimed || err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("expired: %v, %v", claimed, err)
	}
}

// Valid tokens of Secrets are cached as others are, for seconds.
func TestTokensOfSecretsAreCachedForSeconds(t *testing.T) {
	t.Parallel()
	s := newTestSigner(t, newECKey(t, elliptic.P256()))
	token, err := s.SignLegacy("ns", "s", "robot", "u-1")
	if err != nil {
		t.Fatal(err)
	}
	secret := &TokenSecret{Token: []byte(token)}
	a := ServiceAccounts(ServiceAccountConfig{Issuers: []string{testIssuer}, Keys: keysOf(s), Secret: func(context.Context, string, string) (*TokenSecret, error) { return secret, nil }})
	now := time.Now()
	a.now = func() time.Time { return now }
	a.Follow("ServiceAccount", true)
	a.Follow("Secret", true)
	for _, step := range []struct {
		secret *TokenSecret
		after  time.Duration
		good   bool
	}{{secret, 0, true}, {nil, validTTL - time.Second, true}, {nil, validTTL + time.Second, false}} {
		secret = step.secret
		at := now
		a.now = func() time.Time { return at.Add(step.after) }
		if _, claimed, err := a.AuthenticateToken(t.Context(), token); claimed != step.good {
			t.Errorf("after %v: claimed %v, %v", step.after, claimed, err)
		}
	}
}

// The use of a token of a Secret is noted, with a warning if its service account lists it. Without
// lookups the signature suffices.
func TestNotesOnTokensOfSecrets(t *testing.T) {
	t.Parallel()
	s := newTestSigner(t, newECKey(t, elliptic.P256()))
	token, err := s.SignLegacy("ns", "s", "robot", "u-1")
	if err != nil {
		t.Fatal(err)
	}
	const subject = "system:serviceaccount:ns:robot"
	for name, c := range map[string]struct {
		listed, unchecked bool
		want              map[string]string
		warnings          int
	}{
		"created by hand": {false, false, map[string]string{"authentication.k8s.io/legacy-token": subject, "authentication.k8s.io/legacy-token-manual-secret": "s"}, 0},
		"of its account":  {true, false, map[string]string{"authentication.k8s.io/legacy-token": subject, "authentication.k8s.io/legacy-token-autogenerated-secret": "s"}, 1},
		"unchecked":       {true, true, map[string]string{"authentication.k8s.io/legacy-token": subject}, 0},
	} {
		secret := &TokenSecret{Token: []byte(token), Listed: func(_ context.Context, account string) bool { return c.listed && account == "robot" }}
		cfg := ServiceAccountConfig{Issuers: []string{testIssuer}, Keys: keysOf(s), Secret: secretsOf(secret, nil), Unchecked: c.unchecked}
		if c.unchecked {
			cfg.Secret = secretsOf(nil, errors.New("asked"))
		}
		notes := &Notes{}
		_, claimed, err := ServiceAccounts(cfg).AuthenticateToken(context.WithValue(t.Context(), NotesKey{}, notes), token)
		if !claimed || !reflect.DeepEqual(notes.Annotations, c.want) || len(notes.Warnings) != c.warnings {
			t.Errorf("%s: claimed %v, %v, noted %+v", name, claimed, err, notes)
		}
	}
}
