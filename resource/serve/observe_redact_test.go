package serve

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"
)

// Whatever writes a request down leaves credentials in its query out: the log of
// failures and panics, the log with -v, and the audit log.
func TestCredentialsInQueriesAreNotWrittenDown(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	audited, events := auditing(t, metadata)
	s := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("do") {
		case "panic":
			panic("oh")
		case "fail":
			w.WriteHeader(http.StatusInternalServerError)
		}
	}, audited, func(c *testConfig) {
		c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	for _, what := range []string{"panic", "fail", "ok"} {
		do(s, "GET", pathPods+"?do="+what+"&access_token=hush&%74oken=hush&x=y")
	}
	told := told(events())
	for name, text := range map[string]string{"log": log.String(), "audit log": told} {
		if strings.Contains(text, "hush") || strings.Count(text, "access_token=REDACTED&%74oken=REDACTED&x=y") < 3 {
			t.Errorf("%s:\n%s", name, text)
		}
	}
}
