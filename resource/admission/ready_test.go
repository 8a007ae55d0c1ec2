package admission

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"portico/internal/testing/memstore"
	"portico/resource"
)

// held is a store with reads that wait for release.
type held struct {
	resource.Store
	release <-chan struct{}
}

func (h held) List(ctx context.Context, opts resource.ListOptions) (*resource.List, error) {
	select {
	case <-h.release:
		return h.Store.List(ctx, opts)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (h held) Watch(ctx context.Context, opts resource.WatchOptions) (resource.Watcher, error) {
	select {
	case <-h.release:
		return h.Store.Watch(ctx, opts)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// An engine is ready once it has read all configurations; one missing kind is enough for it
// not to be.
func TestReadyWhenAllIsKnown(t *testing.T) {
	for _, last := range []string{
		"mutatingwebhookconfigurations", "validatingwebhookconfigurations", "mutatingadmissionpolicies", "validatingadmissionpolicies",
	} {
		release := make(chan struct{})
		storage := memstore.New()
		e, err := NewEngine(EngineConfig{Logger: quiet(), Store: func(info *resource.Info) resource.Store {
			if info.Resource == last {
				return held{storage.Store(info), release}
			}
			return storage.Store(info)
		}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx) }()
		gates := map[string]*gate{
			"mutatingwebhookconfigurations": e.mutatingWebhooks.informer.synced, "validatingwebhookconfigurations": e.validatingWebhooks.informer.synced,
			"mutatingadmissionpolicies": e.mutatingPolicies.synced, "validatingadmissionpolicies": e.validatingPolicies.synced,
		}
		held := gates[last]
		delete(gates, last)
		if !waitAll(t.Context(), 20*time.Second, slices.Collect(maps.Values(gates))...) {
			t.Fatalf("not all but %s are known", last)
		}
		if e.Ready() == nil {
			t.Errorf("ready before %s are known", last)
		}
		close(release)
		if !waitAll(t.Context(), 20*time.Second, held) || e.Ready() != nil {
			t.Errorf("all is known: %v", e.Ready())
		}
		cancel()
		<-done
	}
}
