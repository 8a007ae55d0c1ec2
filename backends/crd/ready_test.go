package crd

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"portico/internal/testing/await"
	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/admission"
	"portico/resource/rest"
	"portico/resource/serve"
	"portico/resource/serve/metrics"
)

// The readiness check of writes passes once webhooks, policies and namespaces are known, in any
// order.
func TestWritesCheckNeedsAdmission(t *testing.T) {
	t.Parallel()
	for _, namespacesFirst := range []bool{false, true} {
		kept := memstore.New()
		engine, err := admission.NewEngine(admission.EngineConfig{Transport: http.DefaultTransport, Source: func(i *resource.Info) (resource.Store, rest.Codec) { return kept.Store(i), nil }})
		if err != nil {
			t.Fatal(err)
		}
		s := &Server{log: slog.New(slog.DiscardHandler), metrics: metrics.New(), engine: engine}
		s.namespaces = admission.NewNamespaceStates(kept.Store(namespaceInfo()), s.log)
		if err := s.assemble(kept, kept.Feed()); err != nil {
			t.Fatal(err)
		}
		s.addHealthChecks()
		parts := []struct {
			run   func(context.Context) error
			ready func() error
		}{{engine.Run, engine.Ready}, {s.namespaces.Run, s.namespaces.Ready}}
		if namespacesFirst {
			slices.Reverse(parts)
		}
		for _, part := range parts {
			w := httptest.NewRecorder()
			if s.health.ServeHTTP(w, httptest.NewRequest("GET", "/readyz/"+serve.WritesCheck, nil)); w.Code == http.StatusOK {
				t.Errorf("the check passes before all is known; namespaces are first: %v", namespacesFirst)
			}
			start(t, part.run)
			await.Until(t, "the part is ready", func() bool { return part.ready() == nil })
		}
		w := httptest.NewRecorder()
		if s.health.ServeHTTP(w, httptest.NewRequest("GET", "/readyz/"+serve.WritesCheck, nil)); w.Code != http.StatusOK {
			t.Errorf("the check fails when all is known: %d %s", w.Code, w.Body)
		}
	}
}
