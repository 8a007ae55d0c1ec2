package core

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const tokenPath = "/api/v1/namespaces/default/serviceaccounts/robot/token"

func tokenCore(t *testing.T) *Core {
	c := running(t, Config{
		ServiceAccountIssuers: []string{"https://issuer"}, ServiceAccountSigningKeyFile: signingKey(t), APIAudiences: []string{"https://issuer"},
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
	c.createPod(t, "p", "n", "", "")
	for name, r := range map[string]struct {
		path string
		in   map[string]any
		is   func(error) bool
		text string
	}{
		"no account":   {strings.Replace(tokenPath, "robot", "none", 1), spec(nil), apierrors.IsNotFound, `serviceaccounts "none" not found`},
		"too short":    {tokenPath, spec(map[string]any{"expirationSeconds": 599}), apierrors.IsInvalid, "may not specify a duration less than 10 minutes"},
		"too long":     {tokenPath, spec(map[string]any{"expirationSeconds": 1<<32 + 1}), apierrors.IsInvalid, "may not specify a duration larger than 2^32 seconds"},
		"kind":         {tokenPath, bound("ConfigMap", "p", ""), apierrors.IsBadRequest, "cannot bind token to object of type /v1, Kind=ConfigMap"},
		"no pod":       {tokenPath, bound("Pod", "none", ""), apierrors.IsNotFound, `pods "none" not found`},
		"other pod":    {tokenPath, bound("Pod", "p", ""), apierrors.IsBadRequest, `cannot bind token for serviceaccount "robot" to pod running with different serviceaccount name.`},
		"no node":      {tokenPath, bound("Node", "none", ""), apierrors.IsNotFound, `nodes "none" not found`},
		"no secret":    {tokenPath, bound("Secret", "none", ""), apierrors.IsNotFound, `secrets "none" not found`},
		"other secret": {tokenPath, bound("Secret", "s", "other"), apierrors.IsConflict, "Operation cannot be fulfilled on Secret \"s\": the UID in the bound object reference (other) does not match the UID in record"},
		"other name": {tokenPath, map[string]any{"metadata": map[string]any{"name": "other"}, "spec": map[string]any{}}, apierrors.IsInvalid,
			`TokenRequest.authentication.k8s.io "robot" is invalid: metadata.name: Invalid value: "other": must match the service account name if specified`},
		"other account": {tokenPath, map[string]any{"metadata": map[string]any{"uid": "other"}, "spec": map[string]any{}}, apierrors.IsConflict,
			"Operation cannot be fulfilled on TokenRequest.authentication.k8s.io \"robot\": the UID in the token request (other) does not match the UID of the service account"},
	} {
		if err := c.do(t, http.MethodPost, r.path, r.in, nil); !r.is(err) || !strings.Contains(err.Error(), r.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A token for a pod names its node too.
func TestTokenOfPod(t *testing.T) {
	t.Parallel()
	c := tokenCore(t)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec:       corev1.PodSpec{ServiceAccountName: "robot", NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	c.must(t, http.MethodPost, podsPath, pod, pod)
	claims := func(kind, name string) map[string]any {
		got := &authenticationv1.TokenRequest{}
		c.must(t, http.MethodPost, tokenPath, map[string]any{"spec": map[string]any{
			"boundObjectRef": map[string]any{"apiVersion": "v1", "kind": kind, "name": name},
		}}, got)
		data, err := base64.RawURLEncoding.DecodeString(strings.Split(got.Status.Token, ".")[1])
		if err != nil {
			t.Fatal(err)
		}
		var claims map[string]map[string]any
		_ = json.Unmarshal(data, &claims) // other claims are no objects
		return claims["kubernetes.io"]
	}
	ref := func(name, uid any) map[string]any { return map[string]any{"name": name, "uid": uid} }
	if k := claims("Pod", "p"); !reflect.DeepEqual(k["pod"], ref("p", string(pod.UID))) || !reflect.DeepEqual(k["node"], map[string]any{"name": "n"}) {
		t.Errorf("%v", k)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	c.must(t, http.MethodPost, "/api/v1/nodes", node, node)
	if k := claims("Pod", "p"); !reflect.DeepEqual(k["node"], ref("n", string(node.UID))) {
		t.Errorf("%v", k)
	}
	if k := claims("Node", "n"); !reflect.DeepEqual(k["node"], ref("n", string(node.UID))) || k["pod"] != nil {
		t.Errorf("%v", k)
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
			ServiceAccountIssuers: []string{"https://issuer"}, ServiceAccountSigningKeyFile: signingKey(t), APIAudiences: []string{"a"}, MaxTokenExpiration: tc.longest,
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

// A token of a pod for the lifetime that admission asks for lives a year, if it is for the server's
// audiences and the server extends tokens; its answer says when to replace it. The first issuer signs.
func TestTokensOfPodsAreExtended(t *testing.T) {
	t.Parallel()
	for _, extends := range []bool{true, false} {
		c := running(t, Config{
			ServiceAccountIssuers: []string{"https://issuer", "https://old"}, ServiceAccountSigningKeyFile: signingKey(t), ExtendTokenExpiration: extends,
			APIAudiences: []string{"https://issuer", "https://old"}, MaxTokenExpiration: 2 * time.Hour,
		})
		c.must(t, http.MethodPost, "/api/v1/namespaces/default/serviceaccounts", object("robot"), nil)
		c.must(t, http.MethodPost, "/api/v1/namespaces/default/secrets", object("s"), nil)
		c.must(t, http.MethodPost, podsPath, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p"},
			Spec:       corev1.PodSpec{ServiceAccountName: "robot", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}, nil)
		for name, tc := range map[string]struct {
			kind, of  string
			life      int64
			audiences []string
			extended  bool
		}{
			"of a pod":                {"Pod", "p", 3607, nil, true},
			"for the old audience":    {"Pod", "p", 3607, []string{"https://old"}, true},
			"for another life":        {"Pod", "p", 3608, nil, false},
			"for another audience":    {"Pod", "p", 3607, []string{"vault"}, false},
			"for this and another":    {"Pod", "p", 3607, []string{"https://issuer", "vault"}, false},
			"of a secret":             {"Secret", "s", 3607, nil, false},
			"beyond the longest life": {"Pod", "p", 36070, nil, false},
		} {
			got := &authenticationv1.TokenRequest{}
			c.must(t, http.MethodPost, tokenPath, map[string]any{"spec": map[string]any{
				"expirationSeconds": tc.life, "audiences": tc.audiences, "boundObjectRef": map[string]any{"apiVersion": "v1", "kind": tc.kind, "name": tc.of},
			}}, got)
			data, err := base64.RawURLEncoding.DecodeString(strings.Split(got.Status.Token, ".")[1])
			var claims struct {
				Exp, Iat int64
				Iss      string
				K8s      struct{ WarnAfter int64 } `json:"kubernetes.io"`
			}
			if err == nil {
				err = json.Unmarshal(data, &claims)
			}
			life := min(tc.life, 7200)
			if err != nil || claims.Iss != "https://issuer" || got.Status.ExpirationTimestamp.Unix() != claims.Iat+life {
				t.Errorf("%s: %s, %v, %v", name, data, got.Status.ExpirationTimestamp, err)
			}
			want, warn := claims.Iat+life, int64(0)
			if extends && tc.extended {
				want, warn = claims.Iat+365*24*3600, claims.Iat+life
			}
			if claims.Exp != want || claims.K8s.WarnAfter != warn {
				t.Errorf("%s, extended %v: %s", name, extends, data)
			}
		}
	}
}
