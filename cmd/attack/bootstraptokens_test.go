package attack

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"portico/internal/testing/await"
)

// tokenReview returns the user of a token by a TokenReview of the administrator; "": it is invalid.
func (i *installation) tokenReview(t *testing.T, token string) string {
	t.Helper()
	var review authenticationv1.TokenReview
	spec, err := json.Marshal(authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}})
	if err == nil {
		err = json.Unmarshal([]byte(i.must(t, "POST", "/apis/authentication.k8s.io/v1/tokenreviews", string(spec))), &review)
	}
	if err != nil || review.Status.Authenticated != (review.Status.User.Username != "") {
		t.Fatalf("%+v, %v", review.Status, err)
	}
	return review.Status.User.Username
}

// A bootstrap token is good for the user of its id while its Secret in kube-system says so, and for
// no group but those of bootstrap tokens.
func TestBootstrapTokens(t *testing.T) {
	t.Parallel()
	i := target
	const secret = "0123456789abcdef"
	create := func(namespace, id, kind string, data map[string]string) {
		all := map[string]string{"token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true"}
		for key, value := range data {
			all[key] = value
		}
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{"name": "bootstrap-token-" + id}, "type": kind, "stringData": all})
		if err != nil {
			t.Fatal(err)
		}
		i.must(t, "POST", "/api/v1/namespaces/"+namespace+"/secrets", string(body))
	}
	const kind = "bootstrap.kubernetes.io/token"
	set := func(key, value string) map[string]string { return map[string]string{key: value} }
	future := time.Now().Add(time.Hour).Format(time.RFC3339)
	create("kube-system", "aaaaaa", kind, set("expiration", future))
	create("kube-system", "aaaaab", kind, set("auth-extra-groups", "system:bootstrappers:workers"))
	create("kube-system", "bbbbba", kind, set("expiration", time.Now().Add(-time.Second).Format(time.RFC3339)))
	create("kube-system", "bbbbbb", kind, set("expiration", "never"))
	create("kube-system", "bbbbbc", kind, set("usage-bootstrap-authentication", "false"))
	create("kube-system", "bbbbbd", kind, set("auth-extra-groups", "system:masters"))
	create("kube-system", "bbbbbe", kind, set("auth-extra-groups", "system:bootstrappers:a,system:masters"))
	create("kube-system", "bbbbbf", kind, set("token-id", "aaaaaa"))
	create("kube-system", "bbbbbg", "Opaque", nil)
	create("kube-system", "bbbbbh", kind, set("token-secret", "fedcba9876543210"))
	create("a", "bbbbbi", kind, nil)
	create("kube-public", "bbbbbj", kind, nil)
	client := i.client(nil)
	groups := func(more ...string) []string {
		return slices.Concat([]string{"system:bootstrappers"}, more, []string{"system:authenticated"})
	}
	good := []struct {
		name, token string
		groups      []string
	}{
		{"control", "aaaaaa." + secret, groups()},
		{"control: with a group", "aaaaab." + secret, groups("system:bootstrappers:workers")},
	}
	for _, tc := range good {
		user := "system:bootstrap:" + tc.token[:6]
		eventually(t, tc.name, func() error {
			code, got, of, err := i.review(client, "Authorization: Bearer "+tc.token)
			if err == nil && (got != user || !slices.Equal(of, tc.groups)) {
				err = fmt.Errorf("%d as %q of %q, want %q of %q", code, got, of, user, tc.groups)
			}
			return err
		})
		if got := i.tokenReview(t, tc.token); got != user {
			t.Errorf("%s: a review says %q", tc.name, got)
		}
	}
	for _, tc := range []struct{ name, token string }{
		{"another secret", "aaaaaa.0123456789abcdee"},
		{"a part of the secret", "aaaaaa.0123456789abcde"},
		{"no secret", "aaaaaa."},
		{"the id alone", "aaaaaa"},
		{"upper case", "AAAAAA." + secret},
		{"an id that is a path", "../aaa." + secret},
		{"an id that there is not", "cccccc." + secret},
		{"expired", "bbbbba." + secret},
		{"an end that cannot be read", "bbbbbb." + secret},
		{"not for authentication", "bbbbbc." + secret},
		{"the group of administrators", "bbbbbd." + secret},
		{"the group of administrators beside one of its own", "bbbbbe." + secret},
		{"the id of another token", "bbbbbf." + secret},
		{"a Secret of another type", "bbbbbg." + secret},
		{"another token's secret", "bbbbbh." + secret},
		{"a Secret of another namespace", "bbbbbi." + secret},
		{"a Secret of a public namespace", "bbbbbj." + secret},
	} {
		if code, user, _, err := i.review(client, "Authorization: Bearer "+tc.token); err != nil || code != http.StatusUnauthorized {
			t.Errorf("%s: %d as %q, %v", tc.name, code, user, err)
		}
		if user := i.tokenReview(t, tc.token); user != "" {
			t.Errorf("%s: a review says that the token is of %s", tc.name, user)
		}
	}
	i.must(t, "DELETE", "/api/v1/namespaces/kube-system/secrets/bootstrap-token-aaaaaa", "")
	await.Bar(t, "the refusal of the token of a deleted Secret", i.refusedAfter(t, client, "aaaaaa."+secret, time.Now()), revokedWithin)
}
