package admission

import (
	"context"
	"errors"
	"testing"
	"time"

	"portico/internal/testing/memstore"
	"portico/resource"
)

// inStores returns an engine with stores that runs until the test ends.
func inStores(t *testing.T, store func(*resource.Info) resource.Store) *Engine {
	t.Helper()
	e, err := NewEngine(EngineConfig{Logger: quiet(), Store: store})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended with %v", err)
		}
	})
	return e
}

// Restored configurations apply until the store is read.
func TestRestoredConfigurationsApplyUntilRead(t *testing.T) {
	t.Parallel()
	const hooks = "validatingwebhookconfigurations"
	before := memstore.New()
	o, err := resource.Parse([]byte(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"w","uid":"u"}}`))
	if err == nil {
		_, err = before.Store(&resource.Info{Group: configurationGroup, Versions: []string{"v1"}, Resource: hooks, Kind: "ValidatingWebhookConfiguration"}).Create(t.Context(), resource.Key{Name: "w"}, o, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	first := inStores(t, func(i *resource.Info) resource.Store { return before.Store(i) })
	within20s(t, func() bool { return first.Ready() == nil && len(first.Configurations()) == 6 })

	release := make(chan struct{})
	empty := memstore.New()
	next := inStores(t, func(i *resource.Info) resource.Store { return held{empty.Store(i), release} })
	if next.Ready() == nil || len(next.Configurations()) > 0 {
		t.Fatal("an engine that has read nothing is ready")
	}
	for name, s := range first.Configurations() {
		next.Restore(name, s.Items)
	}
	next.Restore("secrets", nil)
	within20s(t, func() bool { return next.Ready() == nil })
	if !next.validatingWebhooks.informer.some.Load() || next.mutatingWebhooks.informer.some.Load() {
		t.Error("restored configurations do not apply")
	}
	if len(next.Configurations()) > 0 {
		t.Error("restored configurations count as read")
	}
	close(release)
	within20s(t, func() bool { return !next.validatingWebhooks.informer.some.Load() && len(next.Configurations()) == 6 })
	next.Restore(hooks, first.Configurations()[hooks].Items)
	if next.validatingWebhooks.informer.some.Load() {
		t.Error("restored configurations replace newer ones")
	}
}

func within20s(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not within 20 s")
		}
	}
}
