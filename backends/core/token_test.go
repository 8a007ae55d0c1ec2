package core

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const tokenPath = "/api/v1/namespaces/default/serviceaccounts/robot/token"

func tokenCore(t *testing.T) *Core {
	c := running(t, Config{
		ServiceAccountIssuer: "https://issuer", ServiceAccountSigningKeyFile: signingKey(t), APIAudiences: []string{"https://issuer"},
	})
	c.must(t, http.MethodPost, "/api/v1/namespaces/default/serviceaccounts", object("robot"), nil)
	c.must(t, http.MethodPost, "/api/v1/namespaces/default/secrets", object("s"), nil)
	return c
}

func TestTokenRequestErrors(t *testing.T) {
	t.Parallel()
	c := tokenCore(t)
	spec := func(spec map[string]any) map[string]any { return map[string]any{"spec": spec} }
	bound := func(kind, name, uid string) map[string]any {
		return spec(map[string]any{"boundObjectRef": map[string]any{"apiVersion": "v1", "kind": kind, "name": name, "uid": uid}})
	}
	for name, r := range map[string]struct {
		path string
		in   map[string]any
		is   func(error) bool
		text string
	}{
		"no account":   {strings.Replace(tokenPath, "robot", "none", 1), spec(nil), apierrors.IsNotFound, `serviceaccounts "none" not found`},
		"too short":    {tokenPath, spec(map[string]any{"expirationSeconds": 599}), apierrors.IsInvalid, "may not specify a duration less than 10 minutes"},
		"too long":     {tokenPath, spec(map[string]any{"expirationSeconds": 1<<32 + 1}), apierrors.IsInvalid, "may not specify a duration larger than 2^32 seconds"},
		"pod":          {tokenPath, bound("Pod", "p", ""), apierrors.IsBadRequest, "cannot bind token"},
		"no secret":    {tokenPath, bound("Secret", "none", ""), apierrors.IsNotFound, `secrets "none" not found`},
		"other secret": {tokenPath, bound("Secret", "s", "other"), apierrors.IsConflict, "does not match the UID in record"},
		"other account": {tokenPath, map[string]any{"metadata": map[string]any{"uid": "other"}, "spec": map[string]any{}}, apierrors.IsConflict,
			"does not match the UID of the service account"},
	} {
		if err := c.do(t, http.MethodPost, r.path, r.in, nil); !r.is(err) || !strings.Contains(err.Error(), r.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTokenClaims(t *testing.T) {
	t.Parallel()
	c := tokenCore(t)
	account := get[corev1.ServiceAccount](t, c, "/api/v1/namespaces/default/serviceaccounts/robot")
	secret := get[corev1.Secret](t, c, "/api/v1/namespaces/default/secrets/s")
	got := &authenticationv1.TokenRequest{}
	c.must(t, http.MethodPost, tokenPath, map[string]any{"spec": map[string]any{
		"expirationSeconds": 700, "audiences": []string{"a", "b"},
		"boundObjectRef": map[string]any{"apiVersion": "v1", "kind": "Secret", "name": "s"},
	}}, got)
	var claims struct {
		Aud           []string
		Exp, Iat, Nbf int64
		Iss, Jti, Sub string
		K8s           struct {
			Namespace      string
			ServiceAccount struct{ Name, UID string }
			Secret         struct{ Name, UID string }
		} `json:"kubernetes.io"`
	}
	parts := strings.Split(got.Status.Token, ".")
	if len(parts) != 3 {
		t.Fatalf("token %q", got.Status.Token)
	}
	data, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err == nil {
		err = json.Unmarshal(data, &claims)
	}
	if err != nil {
		t.Fatal(err)
	}
	if claims.Iss != "https://issuer" || claims.Sub != "system:serviceaccount:default:robot" || strings.Join(claims.Aud, " ") != "a b" || claims.Jti == "" {
		t.Errorf("claims %s", data)
	}
	if k := claims.K8s; k.Namespace != "default" || k.ServiceAccount.Name != "robot" || k.ServiceAccount.UID != string(account.UID) || k.Secret.Name != "s" || k.Secret.UID != string(secret.UID) {
		t.Errorf("claims %s", data)
	}
	if claims.Exp-claims.Iat != 700 || claims.Nbf != claims.Iat || got.Status.ExpirationTimestamp.Unix() != claims.Exp {
		t.Errorf("times %s, %v", data, got.Status.ExpirationTimestamp)
	}

	got = &authenticationv1.TokenRequest{}
	c.must(t, http.MethodPost, tokenPath, map[string]any{"spec": map[string]any{}}, got)
	if strings.Join(got.Spec.Audiences, " ") != "https://issuer" || *got.Spec.ExpirationSeconds != 3600 || !got.Status.ExpirationTimestamp.After(time.Now()) {
		t.Errorf("defaults %+v", got)
	}
	got = &authenticationv1.TokenRequest{}
	c.must(t, http.MethodPost, tokenPath+"?dryRun=All", map[string]any{"spec": map[string]any{}}, got)
	if got.Status.Token != "" {
		t.Error("a dry run makes a token")
	}
}

// The lifetime of a token is shortened to the maximum of the server.
func TestTokenLifetimeIsShortened(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		longest     time.Duration
		asked, want int64
	}{
		{0, 1 << 32, int64(DefaultMaxTokenExpiration / time.Second)},
		{2 * time.Hour, 7201, 7200},
		{2 * time.Hour, 7200, 7200},
		{2 * time.Hour, 600, 600},
	} {
		c := running(t, Config{
			ServiceAccountIssuer: "https://issuer", ServiceAccountSigningKeyFile: signingKey(t), APIAudiences: []string{"a"}, MaxTokenExpiration: tc.longest,
		})
		c.must(t, http.MethodPost, "/api/v1/namespaces/default/serviceaccounts", object("robot"), nil)
		got := &authenticationv1.TokenRequest{}
		c.must(t, http.MethodPost, tokenPath, map[string]any{"spec": map[string]any{"expirationSeconds": tc.asked}}, got)
		left := time.Until(got.Status.ExpirationTimestamp.Time)
		want := time.Duration(tc.want) * time.Second
		if *got.Spec.ExpirationSeconds != tc.want || left > want || left < want-time.Minute {
			t.Errorf("at most %v: asked for %d s and got %d, which ends in %v", tc.longest, tc.asked, *got.Spec.ExpirationSeconds, left)
		}
	}
	for _, wrong := range []time.Duration{-time.Hour, time.Minute, (1<<32 + 1) * time.Second} {
		if _, err := (&Config{MaxTokenExpiration: wrong}).maxTokenExpiration(); err == nil || !strings.Contains(err.Error(), "maximum lifetime") {
			t.Errorf("%v: %v", wrong, err)
		}
	}
}
