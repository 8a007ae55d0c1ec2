package crd

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/admission"
	"portico/resource/serve"
	"portico/resource/serve/metrics"
)

// takesWrites reports whether the readiness check of writes passes.
func (s *Server) takesWrites() bool {
	w := httptest.NewRecorder()
	s.health.ServeHTTP(w, httptest.NewRequest("GET", "/readyz/"+serve.WritesCheck, nil))
	return w.Code == http.StatusOK
}

// The readiness check of writes passes once webhooks, policies and namespaces are known, in any
// order.
func TestWritesCheckNeedsAdmission(t *testing.T) {
	t.Parallel()
	for _, namespacesLast := range []bool{false, true} {
		kept := memstore.New()
		engine, err := admission.NewEngine(admission.EngineConfig{Transport: http.DefaultTransport, Store: func(i *resource.Info) resource.Store { return kept.Store(i) }})
		if err != nil {
			t.Fatal(err)
		}
		s := &Server{log: slog.New(slog.DiscardHandler), metrics: metrics.New(), engine: engine}
		s.namespaces = admission.NewNamespaceStates(kept.Store(namespaceInfo()), s.log)
		s.assemble(kept, kept.Feed())
		s.addHealthChecks()
		if s.takesWrites() {
			t.Error("the check passes before anything is known")
		}
		learn := []func(){
			func() {
				start(t, s.engine.Run)
				eventually(t, "webhooks and policies are known", func() bool { return s.engine.Ready() == nil })
			},
			func() {
				start(t, s.namespaces.Run)
				eventually(t, "namespaces are known", func() bool { return s.namespaces.Ready() == nil })
			},
		}
		if !namespacesLast {
			slices.Reverse(learn)
		}
		learn[0]()
		if s.takesWrites() {
			t.Errorf("the check passes before all is known; namespaces are last: %v", namespacesLast)
		}
		learn[1]()
		if !s.takesWrites() {
			t.Error("the check fails when all is known")
		}
	}
}

// start runs a part until the test ends.
func start(t testing.TB, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("a part ended with %v", err)
		}
	})
}
