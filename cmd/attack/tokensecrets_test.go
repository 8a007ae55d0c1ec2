package attack

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A token of a Secret is good for its service account while the Secret has it, unless it is
// marked invalid.
func TestTokensOfSecrets(t *testing.T) {
	t.Parallel()
	i := target
	i.namespace(t, "legacy")
	const secrets, accounts = "/api/v1/namespaces/legacy/secrets", "/api/v1/namespaces/legacy/serviceaccounts"
	read := func(name string) (s corev1.Secret) {
		if err := json.Unmarshal([]byte(i.must(t, "GET", secrets+"/"+name, "")), &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	// tokenOf makes a service account and a Secret, and returns the token.
	tokenOf := func(name string) string {
		i.must(t, "POST", accounts, fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
		i.must(t, "POST", secrets, fmt.Sprintf(`{"type":"kubernetes.io/service-account-token","metadata":{"name":%q,"annotations":{"kubernetes.io/service-account.name":%q}}}`, name, name))
		var token string
		eventually(t, "the Secret "+name+" has a token", func() error {
			s := read(name)
			if token = string(s.Data["token"]); token == "" || len(s.Data["ca.crt"]) == 0 || string(s.Data["namespace"]) != "legacy" {
				return errors.New("not yet")
			}
			return nil
		})
		return token
	}
	spare := tokenOf("spare")
	for _, tc := range []struct {
		name   string
		before func(name string) // what happens before the token is used
		token  func(token string) string
		code   int
	}{
		{"good", nil, nil, 201},
		{"changed", nil, func(token string) string {
			header, rest, _ := strings.Cut(token, ".")
			claims, signature, _ := strings.Cut(rest, ".")
			data, _ := base64.RawURLEncoding.DecodeString(claims)
			return header + "." + base64.RawURLEncoding.EncodeToString([]byte(strings.ReplaceAll(string(data), "changed", "spare"))) + "." + signature
		}, 401},
		{"replaced", func(name string) {
			i.must(t, "PATCH", secrets+"/"+name, fmt.Sprintf(`{"data":{"token":%q}}`, base64.StdEncoding.EncodeToString([]byte(spare))), merge)
		}, nil, 401},
		{"invalid", func(name string) {
			i.must(t, "PATCH", secrets+"/"+name, `{"metadata":{"labels":{"kubernetes.io/legacy-token-invalid-since":"2026-01-01"}}}`, merge)
		}, nil, 401},
		{"deleted", func(name string) { i.must(t, "DELETE", secrets+"/"+name, "") }, nil, 401},
		{"ownerless", func(name string) {
			i.must(t, "DELETE", accounts+"/"+name, "")
			eventually(t, "the Secret goes with its account", func() error {
				if code, _, err := i.ask(i.admin, "GET", secrets+"/"+name, ""); err != nil || code != http.StatusNotFound {
					return fmt.Errorf("%d %v", code, err)
				}
				return nil
			})
		}, nil, 401},
	} {
		token := tokenOf(tc.name)
		if tc.before != nil {
			tc.before(tc.name)
		}
		if tc.token != nil {
			token = tc.token(token)
		}
		code, user, groups, err := i.review(i.client(nil), "Authorization: Bearer "+token)
		want := ""
		if tc.code == http.StatusCreated {
			want = "system:serviceaccount:legacy:" + tc.name
		}
		if err != nil || code != tc.code || user != want {
			t.Errorf("%s: %d as %q of %q, %v, want %d as %q", tc.name, code, user, groups, err, tc.code, want)
		}
	}
	if used := read("good").Labels["kubernetes.io/legacy-token-last-used"]; used == "" {
		t.Error("the use of the token is not recorded")
	}
}
