package audit

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"portico/internal/testing/await"
)

// Events that a webhook redirects go nowhere, and are counted as lost.
func TestWebhookThatRedirects(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/events" {
			t.Errorf("%s %s was followed", r.Method, r.URL)
		}
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	}))
	defer server.Close()
	config := writeFile(t, "redirecting.kubeconfig", `{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":"`+server.URL+
		`/events"}}],"contexts":[{"name":"c","context":{"cluster":"c"}}],"current-context":"c"}`)
	a := auditor(t, everything, func(o *Options) {
		o.Webhook.ConfigFile, o.Webhook.InitialBackoff = config, time.Millisecond
		o.Webhook.Delivery.Batch.MaxWait = time.Millisecond
	})
	end, before := start(t, a), lost(t, a, "webhook")
	defer end()
	ask(t, a)
	await.Until(t, "the event is counted as lost", func() bool { return lost(t, a, "webhook") == before+1 })
}
