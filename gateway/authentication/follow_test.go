package authentication

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"portico/internal/testing/await"
	"portico/resource/authn"
)

// change writes the configuration and has it read.
func (r *running) change(t *testing.T, text string) {
	t.Helper()
	write(t, r.path, text)
	authn.Reload()
}

// accepts waits until a token is of a user.
func (r *running) accepts(t *testing.T, token, name string) {
	t.Helper()
	await.Until(t, "the token is of "+name, func() bool {
		user, err := r.ask(token)
		return err == nil && user.Name == name
	})
}

// logs waits until the log has a text.
func (r *running) logs(t *testing.T, text string) {
	t.Helper()
	await.Until(t, "the log has "+text, func() bool { return strings.Contains(r.log.String(), text) })
}

// A change of the file takes effect without a restart. One that is invalid, or that changes what is read
// once, is reported and changes nothing.
func TestConfigurationIsReadAgain(t *testing.T) {
	t.Parallel()
	i, other := newIssuer(t), newIssuer(t)
	first := configuration(entry(i, "[portico]", prefixed))
	r := start(t, first, Config{})
	r.accepts(t, i.Token(nil), "oidc:jane")

	for _, tc := range []struct{ text, want string }{
		{"", "empty config data"},
		{first + "anonymous: {enabled: true}\n", "changed from initial configuration file"},
		{strings.ReplaceAll(first, "claim: sub", "claims: sub"), "unknown field"},
		{strings.ReplaceAll(first, "https:", "http:"), "URL scheme must be https"},
	} {
		r.change(t, tc.text)
		r.logs(t, tc.want)
		r.accepts(t, i.Token(nil), "oidc:jane")
	}

	r.change(t, configuration(entry(i, "[portico]", strings.ReplaceAll(prefixed, "oidc:", "panda:")), entry(other, "[portico]", prefixed)))
	r.accepts(t, i.Token(nil), "panda:jane")
	r.accepts(t, other.Token(nil), "oidc:jane")

	r.change(t, configuration())
	await.Until(t, "tokens of issuers that were removed are refused", func() bool { _, err := r.ask(i.Token(nil)); return err != nil })
	r.change(t, first)
	r.accepts(t, i.Token(nil), "oidc:jane")
}

// While issuers are replaced again and again, no token of an issuer that stays is refused.
func TestConfigurationIsReadAgainUnderLoad(t *testing.T) {
	t.Parallel()
	i, other := newIssuer(t), newIssuer(t)
	one := configuration(entry(i, "[portico]", prefixed))
	two := configuration(entry(i, "[portico]", prefixed), entry(other, "[portico]", strings.ReplaceAll(prefixed, "oidc:", "other:")))
	r := start(t, one, Config{})
	r.accepts(t, i.Token(nil), "oidc:jane")
	token, foreign := i.Token(nil), other.Token(nil)
	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	var asked, refused atomic.Int64
	for range 4 {
		clients.Go(func() {
			for ctx.Err() == nil {
				asked.Add(1)
				if user, err := r.ask(token); err != nil || user.Name != "oidc:jane" {
					refused.Add(1)
				}
			}
		})
	}
	for range 5 {
		r.change(t, two)
		r.accepts(t, foreign, "other:jane")
		r.change(t, one)
		await.Until(t, "the issuer is removed", func() bool { _, err := r.ask(foreign); return err != nil })
	}
	cancel()
	clients.Wait()
	if asked.Load() == 0 || refused.Load() > 0 {
		t.Errorf("%d of %d requests were refused", refused.Load(), asked.Load())
	}
}
