package core

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"portico/backends/process"
	"portico/resource/client"
	"portico/resource/serve"
)

// The readiness check of writes passes once webhooks and policies are known.
func TestWritesCheckNeedsAdmission(t *testing.T) {
	c := newCore(t, Config{Config: process.Config{Gateway: client.Gateway{URL: "https://127.0.0.1:1"}}})
	c.addHealthChecks()
	takes := func() bool {
		w := httptest.NewRecorder()
		c.health.ServeHTTP(w, httptest.NewRequest("GET", "/readyz/"+serve.WritesCheck, nil))
		return w.Code == http.StatusOK
	}
	start(t, c.cache.Run)
	eventually(t, "the cache is ready", c.cache.Ready)
	if takes() {
		t.Error("the check passes before the webhooks are read")
	}
	start(t, c.engine.Run)
	eventually(t, "webhooks and policies are known", func() bool { return c.engine.Ready() == nil })
	if !takes() {
		t.Error("the check fails when all is known")
	}
}
