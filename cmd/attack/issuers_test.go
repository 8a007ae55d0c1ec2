package attack

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"portico/internal/testing/issuertest"
)

// startIssuers starts the issuers of the installation, and writes its AuthenticationConfiguration.
func startIssuers(dir string) (issuers [2]*issuertest.Issuer, config string, err error) {
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n"
	for n, prefix := range []string{"login:", "other:"} {
		i, err := issuertest.Start()
		if err != nil {
			return issuers, "", err
		}
		issuers[n] = i
		text += fmt.Sprintf("- issuer: {url: %s, certificateAuthority: %q, audiences: [%s]}\n  claimMappings: {username: {claim: sub, prefix: %q}, groups: {claim: groups, prefix: %q}}\n",
			i.URL, i.CA, issuertest.Audience, prefix, prefix)
	}
	config = filepath.Join(dir, "authentication.yaml")
	return issuers, config, os.WriteFile(config, []byte(text), 0o600)
}

// A token of an issuer is good for the users and groups that the configuration lets it name. One that is forged,
// or of another issuer, is 401 and never anonymous, and a review says the same.
func TestForgedIssuerTokens(t *testing.T) {
	t.Parallel()
	i := target
	client, login, other := i.client(nil), i.issuers[0], i.issuers[1]
	for _, tc := range []struct {
		name, token, user string
		groups            []string
	}{
		{"control", login.Token(nil), "login:jane", nil},
		{"control: the other issuer", other.Token(nil), "other:jane", nil},
		{"a user and a group of the system", login.Token(issuertest.Claims{"sub": "system:admin", "groups": []string{"system:masters"}}), "login:system:admin", []string{"login:system:masters"}},
		{"a user of the other issuer", login.Token(issuertest.Claims{"sub": "other:jane"}), "login:other:jane", nil},
	} {
		groups := append(tc.groups, "system:authenticated")
		eventually(t, tc.name, func() error {
			code, user, of, err := i.review(client, "Authorization: Bearer "+tc.token)
			if err == nil && (user != tc.user || !slices.Equal(of, groups)) {
				err = fmt.Errorf("%d as %q of %q, want %q of %q", code, user, of, tc.user, groups)
			}
			return err
		})
		if got := i.tokenReview(t, tc.token); got != tc.user {
			t.Errorf("%s: a review says %q", tc.name, got)
		}
	}
	f := newForge(t, "a", "confused")
	account, ok := f.payload["iss"].(string)
	if !ok {
		t.Fatalf("the issuer of service accounts is %v", f.payload["iss"])
	}
	forgeries := issuertest.Forgeries(login, other, account)
	good := login.Token(nil)
	forgeries["a service account's, with the issuer of users"] = f.claim("iss", login.URL)
	forgeries["claims of a service account, by the issuer of users"] = login.Sign(login.Header(), issuertest.Claims(f.payload))
	forgeries["header and claims of a service account, by the issuer of users"] = login.Sign(issuertest.Claims(f.header), issuertest.Claims(f.payload))
	forgeries["a part more"] = good + ".x"
	forgeries["five parts"] = good + good[strings.LastIndexByte(good, '.'):] + ".x"
	for name, token := range forgeries {
		if code, user, _, err := i.review(client, "Authorization: Bearer "+token); err != nil || code != http.StatusUnauthorized {
			t.Errorf("%s: %d as %q, %v", name, code, user, err)
		}
		if got := i.tokenReview(t, token); got != "" {
			t.Errorf("%s: a review says %q", name, got)
		}
	}
}
