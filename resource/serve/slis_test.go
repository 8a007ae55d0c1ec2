package serve

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// /metrics/slis has the results of the health checks.
func TestSLIs(t *testing.T) {
	t.Parallel()
	h, failing := NewHealth(), true
	h.AddReady("storage", func(*http.Request) error {
		if failing {
			return errors.New("away")
		}
		return nil
	})
	router := NewRouter(Routes{Health: h})
	ask := func(path string) string {
		w := httptest.NewRecorder()
		router.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w.Body.String()
	}
	ask("/readyz")
	failing = false
	ask("/readyz?exclude=ping")
	ask("/livez")
	ask("/readyz/storage")
	text := ask("/metrics/slis")
	for _, want := range []string{
		`kubernetes_healthcheck{name="storage",type="readyz"} 1`,
		`kubernetes_healthcheck{name="ping",type="livez"} 1`,
		`kubernetes_healthchecks_total{name="storage",status="error",type="readyz"} 1`,
		`kubernetes_healthchecks_total{name="storage",status="success",type="readyz"} 1`,
		`kubernetes_healthchecks_total{name="ping",status="success",type="readyz"} 1`,
		`process_start_time_seconds `,
	} {
		if !strings.Contains(text, "\n"+want) {
			t.Errorf("missing %s in\n%s", want, text)
		}
	}
	if strings.Contains(text, `name="storage",type="livez"`) {
		t.Errorf("/livez has no check of the storage:\n%s", text)
	}
	if !strings.Contains(ask("/"), `"/metrics/slis"`) {
		t.Error("not in the index")
	}
}
