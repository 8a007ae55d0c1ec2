package authentication

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"portico/internal/testing/issuertest"
	"portico/resource/egress"
)

// to connects to a server whatever the address is, if that is the one that is expected.
func to(address, server string) egress.Dial {
	return func(ctx context.Context, network, got string) (net.Conn, error) {
		if got != address {
			return nil, fmt.Errorf("connection to %s, want %s", got, address)
		}
		return new(net.Dialer).DialContext(ctx, network, server)
	}
}

// An issuer is reached by the egress that it names, which knows its address, and the webhook by that of the control plane.
func TestEgress(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"cluster", "controlplane"} {
		i := newIssuer(t)
		proxy := to("example.com:443", i.URL[len("https://"):])
		i.URL = "https://example.com"
		via := egress.Selector{Cluster: proxy}
		if kind == "controlplane" {
			via = egress.Selector{ControlPlane: proxy}
		}
		r := start(t, configuration(entry(i, "[portico]", "    egressSelectorType: "+kind+"\n"+prefixed)), Config{Egress: via}).ready(t)
		if user, err := r.ask(i.Token(nil)); err != nil || user.Name != "oidc:jane" {
			t.Errorf("%s: user %v, %v", kind, user, err)
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		review := authenticationv1.TokenReview{Status: authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "jane"}}}
		review.APIVersion, review.Kind = "authentication.k8s.io/v1", "TokenReview"
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review) // the client is gone
	}))
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "webhook.kubeconfig")
	write(t, path, kubeconfig("http://webhook.invalid"))
	r := start(t, "", Config{
		Webhook: Webhook{ConfigFile: path, Version: "v1", CacheTTL: time.Minute},
		Egress:  egress.Selector{ControlPlane: to("webhook.invalid:80", server.Listener.Addr().String())},
	})
	if user, err := r.ask("x"); err != nil || user.Name != "jane" {
		t.Errorf("webhook: user %v, %v", user, err)
	}
}

// An issuer whose egress is not configured is refused when the file changes, as at the start.
func TestEgressOfChangedFile(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	first := configuration(entry(i, "[portico]", prefixed))
	r := start(t, first, Config{})
	r.accepts(t, i.Token(nil), "oidc:jane")
	r.change(t, configuration(entry(i, "[portico]", "    egressSelectorType: cluster\n"+prefixed)))
	r.logs(t, "--egress-selector-config-file names no proxy for it")
	if user, err := r.ask(i.Token(issuertest.Claims{"jti": "new"})); err != nil || user.Name != "oidc:jane" {
		t.Errorf("user %v, %v", user, err)
	}
}
