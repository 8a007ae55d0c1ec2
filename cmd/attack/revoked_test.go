package attack

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"portico/internal/testing/await"
)

// revokedWithin is how soon a token is refused after what it depends on was deleted.
const revokedWithin = 2 * time.Second

// A token of a service account is refused soon after its account, or the pod, Secret or node that it
// is bound to, is deleted, also if another one of the name is there again; by reviews, too.
func TestRevokedTokens(t *testing.T) {
	t.Parallel()
	i := target
	i.namespace(t, "revoked")
	const core, accounts = "/api/v1/namespaces/revoked", "/api/v1/namespaces/revoked/serviceaccounts"
	bound := func(kind, name string) string {
		return fmt.Sprintf(`{"boundObjectRef":{"apiVersion":"v1","kind":%q,"name":%q}}`, kind, name)
	}
	for _, tc := range []struct{ name, path, object, spec string }{
		{"account", accounts, `{"metadata":{"name":"account"}}`, `{}`},
		{"pod", core + "/pods", `{"metadata":{"name":"pod"},"spec":{"serviceAccountName":"pod","containers":[{"name":"c","image":"i"}]}}`, bound("Pod", "pod")},
		{"secret", core + "/secrets", `{"metadata":{"name":"secret"}}`, bound("Secret", "secret")},
		{"node", "/api/v1/nodes", `{"metadata":{"name":"node"}}`, bound("Node", "node")},
	} {
		for _, again := range []bool{false, true} {
			if tc.name != "account" && !again {
				i.must(t, "POST", accounts, fmt.Sprintf(`{"metadata":{"name":%q}}`, tc.name))
			}
			if !again {
				i.must(t, "POST", tc.path, tc.object)
			}
			token := requestToken(t, accounts+"/"+tc.name, tc.spec)
			client := i.client(nil)
			for range 2 { // the second result is cached
				if code, user, _, err := i.review(client, "Authorization: Bearer "+token); err != nil || user != "system:serviceaccount:revoked:"+tc.name {
					t.Fatalf("%s: %d as %q, %v", tc.name, code, user, err)
				}
			}
			i.must(t, "DELETE", tc.path+"/"+tc.name+"?gracePeriodSeconds=0", "")
			deleted := time.Now()
			if !again { // the second time it stays away
				i.must(t, "POST", tc.path, tc.object)
			}
			took := i.refusedAfter(t, client, token, deleted)
			t.Logf("%s, created again %v: refused after %v", tc.name, !again, took)
			await.Bar(t, "the refusal of a token of the "+tc.name, took, revokedWithin)
			if user := i.tokenReview(t, token); user != "" {
				t.Errorf("%s: a review says that the token is of %s", tc.name, user)
			}
		}
	}
}

// refusedAfter returns how long after a time a token is refused.
func (i *installation) refusedAfter(t *testing.T, client *http.Client, token string, since time.Time) time.Duration {
	t.Helper()
	eventually(t, "the token is refused", func() error {
		code, _, _, err := i.review(client, "Authorization: Bearer "+token)
		if err == nil && code != http.StatusUnauthorized {
			err = fmt.Errorf("answered %d", code)
		}
		return err
	})
	return time.Since(since)
}

// Tokens of many pods are refused soon when all of the pods go at once, with their namespace.
func TestRevokedTogether(t *testing.T) {
	t.Parallel()
	i := target
	i.namespace(t, "revoked-together")
	const core = "/api/v1/namespaces/revoked-together"
	i.must(t, "POST", core+"/serviceaccounts", `{"metadata":{"name":"bot"}}`)
	var tokens []string
	for n := range 20 {
		i.must(t, "POST", core+"/secrets", fmt.Sprintf(`{"metadata":{"name":"s-%d"}}`, n))
		tokens = append(tokens, requestToken(t, core+"/serviceaccounts/bot", fmt.Sprintf(`{"boundObjectRef":{"apiVersion":"v1","kind":"Secret","name":"s-%d"}}`, n)))
		if user := i.tokenReview(t, tokens[n]); user != "system:serviceaccount:revoked-together:bot" {
			t.Fatalf("token %d is of %q", n, user)
		}
	}
	i.must(t, "DELETE", core+"/secrets", "")
	deleted := time.Now()
	var wg sync.WaitGroup
	for _, token := range tokens {
		wg.Go(func() {
			await.Bar(t, "the refusal of a token", i.refusedAfter(t, i.client(nil), token, deleted), revokedWithin)
		})
	}
	wg.Wait()
}

// The use of a token of extended lifetime that should have been replaced is in the audit event of
// each request, and is counted.
func TestStaleTokens(t *testing.T) {
	t.Parallel()
	i := target
	f := newForge(t, "a", "stale")
	token := f.claim("kubernetes.io\twarnafter", time.Now().Add(-time.Hour).Unix())
	path := "/api/v1/namespaces/a/configmaps/stale-" + mark
	for range 2 { // the second result is cached
		if code, answer, err := i.ask(i.client(nil), "GET", path, "", "Authorization: Bearer "+token); err != nil || code != http.StatusForbidden {
			t.Fatalf("%d %s %v", code, answer, err)
		}
	}
	eventually(t, "the audit log says that the token is stale", func() error {
		log, err := os.ReadFile(filepath.Join(i.Dir, auditLog))
		if err != nil {
			return err
		}
		noted := 0
		for line := range strings.Lines(string(log)) {
			if strings.Contains(line, path) && strings.Contains(line, `"authentication.k8s.io/stale-token":"subject: system:serviceaccount:a:stale, seconds after warning threshold: 36`) {
				noted++
			}
		}
		if noted != 2 {
			return fmt.Errorf("in %d events", noted)
		}
		return nil
	})
	if metrics := i.must(t, "GET", "/metrics", ""); !strings.Contains(metrics, "\nserviceaccount_stale_tokens_total 1\n") {
		t.Error("the token is not counted once")
	}
}
