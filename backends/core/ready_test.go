package core

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"portico/backends/process"
	"portico/resource/client"
	"portico/resource/serve"
)

// The server says that it takes writes once webhooks and policies are known, no
// earlier.
func TestTakesWritesWhenAllIsKnown(t *testing.T) {
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
		t.Error("writes are taken though nobody has read the webhooks")
	}
	start(t, c.engine.Run)
	eventually(t, "webhooks and policies are known", func() bool { return c.engine.Ready() == nil })
	if !takes() {
		t.Error("writes are not taken though all is known")
	}
}
