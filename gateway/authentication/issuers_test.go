package authentication

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"portico/internal/testing/await"
	"portico/internal/testing/issuertest"
	"portico/resource"
	"portico/resource/authn"
)

func newIssuer(t *testing.T) *issuertest.Issuer {
	t.Helper()
	i, err := issuertest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.Close)
	return i
}

// entry is an issuer of a configuration with more lines of its own.
func entry(i *issuertest.Issuer, audiences, more string) string {
	return fmt.Sprintf("- issuer:\n    url: %s\n    audiences: %s\n    certificateAuthority: |\n      %s\n%s\n",
		i.URL, audiences, strings.ReplaceAll(strings.TrimSpace(i.CA), "\n", "\n      "), more)
}

const prefixed = `  claimMappings: {username: {claim: sub, prefix: "oidc:"}}`

func configuration(entries ...string) string {
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:"
	if len(entries) == 0 {
		return text + " []\n"
	}
	return text + "\n" + strings.Join(entries, "")
}

func write(t *testing.T, path, text string) {
	t.Helper()
	next := path + ".next"
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
}

// running is an authentication that runs until the test ends.
type running struct {
	*Authentication
	path string
	log  *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

// start runs an authentication. With a text, that is its configuration.
func start(t *testing.T, text string, cfg Config) *running {
	t.Helper()
	r := &running{log: &lockedBuffer{}}
	if text != "" {
		r.path = filepath.Join(t.TempDir(), "authentication.yaml")
		write(t, r.path, text)
		cfg.ConfigFile = r.path
	}
	cfg.Complete()
	a, err := New(cfg, Dependencies{Host: t.Name(), Registry: prometheus.NewRegistry(), Logger: slog.New(slog.NewTextHandler(r.log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	r.Authentication = a
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return r
}

// ready waits until the issuers have answered.
func (r *running) ready(t *testing.T) *running {
	t.Helper()
	await.Until(t, "the issuers are ready", func() bool {
		g := r.issuers.current.Load()
		return g != nil && g.unready() == nil
	})
	return r
}

// ask authenticates a request with a bearer token.
func (r *running) ask(token string) (*resource.User, error) {
	req := httptest.NewRequest(http.MethodGet, "/api", nil)
	req.Header.Set("Authorization", "Bearer "+token)
	user, ok, err := r.Authenticate(req)
	if err == nil && !ok {
		err = fmt.Errorf("not authenticated")
	}
	return user, err
}

// refuses checks that a token is an error that has a text.
func (r *running) refuses(t *testing.T, what, token, text string) {
	t.Helper()
	user, err := r.ask(token)
	if user != nil || err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: user %v, error %v; want an error with %q", what, user, err, text)
	}
}

// The users of tokens are made of their claims, by claims and by expressions, with uid and extra; what
// the rules refuse is no user.
func TestUsersOfIssuers(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	for _, tc := range []struct {
		name, audiences, more string
		claims                issuertest.Claims
		want                  *resource.User
		refused               string
	}{
		{name: "claims", audiences: "[portico]", more: prefixed, claims: issuertest.Claims{"jti": "7"},
			want: &resource.User{Name: "oidc:jane", Groups: []string{"system:authenticated"}, Extra: map[string][]string{"authentication.kubernetes.io/credential-id": {"JTI=7"}}}},
		{name: "groups", audiences: "[portico]", claims: issuertest.Claims{"groups": []string{"a", "b"}},
			more: `  claimMappings: {username: {claim: sub, prefix: ""}, groups: {claim: groups, prefix: "g:"}, uid: {claim: sub}}`,
			want: &resource.User{Name: "jane", UID: "jane", Groups: []string{"g:a", "g:b", "system:authenticated"}}},
		{name: "expressions", audiences: "[portico]", claims: issuertest.Claims{"roles": "x,y", "team": map[string]any{"name": "blue"}},
			more: `  claimMappings: {username: {expression: "'k8s-' + claims.sub"}, groups: {expression: "claims.roles.split(',').map(r, r)"}, uid: {expression: "claims.sub + '!'"}, extra: [{key: example.org/team, valueExpression: claims.team.name}]}`,
			want: &resource.User{Name: "k8s-jane", UID: "jane!", Groups: []string{"x", "y", "system:authenticated"}, Extra: map[string][]string{"example.org/team": {"blue"}}}},
		{name: "another audience of several", audiences: "[a, portico]", more: "    audienceMatchPolicy: MatchAny\n" + prefixed,
			want: &resource.User{Name: "oidc:jane", Groups: []string{"system:authenticated"}}},
		{name: "an id that is no string", audiences: "[portico]", more: prefixed, claims: issuertest.Claims{"jti": 7},
			want: &resource.User{Name: "oidc:jane", Groups: []string{"system:authenticated"}}},
		{name: "rule of claims", audiences: "[portico]", more: prefixed + "\n" + `  claimValidationRules: [{expression: "claims.hd == 'example.com'", message: the hd claim must be example.com}]`,
			claims: issuertest.Claims{"hd": "example.org"}, refused: "the hd claim must be example.com"},
		{name: "required value", audiences: "[portico]", more: prefixed + "\n  claimValidationRules: [{claim: hd, requiredValue: example.com}]",
			claims: issuertest.Claims{"hd": "example.org"}, refused: "oidc: required claim hd value does not match"},
		{name: "rule of users", audiences: "[portico]", claims: issuertest.Claims{"sub": "system:admin"},
			more:    `  claimMappings: {username: {claim: sub, prefix: ""}}` + "\n" + `  userValidationRules: [{expression: "!user.username.startsWith('system:')", message: usernames of the system are reserved}]`,
			refused: "usernames of the system are reserved"},
		{name: "no username", audiences: "[portico]", more: `  claimMappings: {username: {expression: "claims.?none.orValue('')"}}`, refused: "username"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := start(t, configuration(entry(i, tc.audiences, tc.more)), Config{}).ready(t)
			if tc.refused != "" {
				r.refuses(t, tc.name, i.Token(tc.claims), tc.refused)
				return
			}
			got, err := r.ask(i.Token(tc.claims))
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Extra) == 0 {
				got = &resource.User{Name: got.Name, UID: got.UID, Groups: got.Groups}
			}
			if !reflect.DeepEqual(got, tc.want) {
				t.Errorf("user %+v, want %+v", got, tc.want)
			}
		})
	}
}

// Forged and confused tokens are errors, never users and never the anonymous one.
func TestForgedTokensOfIssuers(t *testing.T) {
	t.Parallel()
	i, other := newIssuer(t), newIssuer(t)
	r := start(t, configuration(entry(i, "[portico]", prefixed), entry(other, "[portico]", strings.ReplaceAll(prefixed, "oidc:", "other:"))), Config{AnonymousAuth: true}).ready(t)
	for what, token := range issuertest.Forgeries(i, other, "https://accounts.example") {
		r.refuses(t, what, token, "")
	}
	for who, token := range map[string]string{"oidc:jane": i.Token(nil), "other:jane": other.Token(nil)} {
		if user, err := r.ask(token); err != nil || user.Name != who {
			t.Errorf("user %v, error %v; want %s", user, err, who)
		}
	}
}

// An issuer by flags has a prefix of its own before users, unless the flags say otherwise.
func TestIssuerByFlags(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	write(t, ca, i.CA)
	for prefix, want := range map[string]string{"": i.URL + "#jane", "-": "jane", "x:": "x:jane"} {
		o := OIDC{IssuerURL: i.URL, ClientID: issuertest.Audience, CAFile: ca, UsernameClaim: "sub", UsernamePrefix: prefix, GroupsClaim: "groups", GroupsPrefix: "g:",
			SigningAlgs: []string{"RS256"}, RequiredClaims: map[string]string{"hd": "example.com"}}
		r := start(t, "", Config{OIDC: o}).ready(t)
		user, err := r.ask(i.Token(issuertest.Claims{"hd": "example.com", "groups": "a"}))
		if err != nil || user.Name != want || !reflect.DeepEqual(user.Groups, []string{"g:a", "system:authenticated"}) {
			t.Errorf("prefix %q: user %+v, error %v; want %s", prefix, user, err, want)
		}
		r.refuses(t, "claim missing", i.Token(nil), "required claim hd not present")
	}
}

// An issuer that does not answer refuses its own tokens; others and the start do not wait for it.
func TestIssuerThatIsAway(t *testing.T) {
	t.Parallel()
	i, away := newIssuer(t), newIssuer(t)
	away.Away.Store(true)
	r := start(t, configuration(entry(away, "[portico]", prefixed), entry(i, "[portico]", prefixed)), Config{AnonymousAuth: true})
	await.Until(t, "the issuers are ready", func() bool { _, err := r.ask(i.Token(nil)); return err == nil })
	r.refuses(t, "token of the issuer that is away", away.Token(nil), "not initialized")
	if err := r.issuers.current.Load().unready(); err == nil || !strings.Contains(err.Error(), away.URL) {
		t.Errorf("unready: %v; want one with %s", err, away.URL)
	}
}

// A TokenReview for other audiences than those of the server is refused: tokens of issuers are for
// this server.
func TestAudiencesOfReviews(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	r := start(t, configuration(entry(i, "[portico]", prefixed)), Config{APIAudiences: []string{"api"}}).ready(t)
	for wanted, matched := range map[string][]string{"api": {"api"}, "elsewhere": nil} {
		audiences := &authn.Audiences{Wanted: []string{wanted}}
		req := httptest.NewRequest(http.MethodGet, "/", nil).WithContext(authn.WithAudiences(t.Context(), audiences))
		req.Header.Set("Authorization", "Bearer "+i.Token(nil))
		_, ok, _ := r.Authenticate(req)
		if ok != (matched != nil) || !reflect.DeepEqual(audiences.Matched, matched) {
			t.Errorf("wanted %s: authenticated %v with %q, want %q", wanted, ok, audiences.Matched, matched)
		}
	}
}
