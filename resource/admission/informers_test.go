package admission

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/internal/testing/await"
	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/rest"
)

// held is a store with watches that wait for release.
type held struct {
	resource.Store
	release <-chan struct{}
}

func (h held) Watch(ctx context.Context, opts resource.WatchOptions) (resource.Watcher, error) {
	select {
	case <-h.release:
		return h.Store.Watch(ctx, opts)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// inStores returns an engine over a storage that runs until the test ends. The resources for
// which late returns true are read once release is closed.
func inStores(t *testing.T, storage *memstore.Storage, release <-chan struct{}, late func(name string) bool) *Engine {
	t.Helper()
	e, err := NewEngine(EngineConfig{Transport: http.DefaultTransport, Logger: quiet(), FirstRead: time.Minute, Source: func(i *resource.Info) (resource.Store, rest.Codec) {
		if late(i.Resource) {
			return held{storage.Store(i), release}, nil
		}
		return storage.Store(i), nil
	}})
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

// An engine is ready, and a waiting write continues, once all configurations were read.
func TestReadyWhenAllIsKnown(t *testing.T) {
	t.Parallel()
	for last, write := range map[string]bool{
		"mutatingwebhookconfigurations": true, "validatingwebhookconfigurations": false, "mutatingadmissionpolicies": true, "validatingadmissionpolicies": false,
	} {
		release := make(chan struct{})
		e := inStores(t, memstore.New(), release, func(name string) bool { return name == last })
		await.Until(t, "five configurations are known", func() bool { return len(e.Configurations()) == 5 })
		answered := make(chan error, 1)
		go func() {
			if write {
				answered <- e.Mutate(t.Context(), create(benchKind("configmaps")))
			} else {
				answered <- e.Validate(t.Context(), create(benchKind("configmaps")))
			}
		}()
		select {
		case err := <-answered:
			t.Fatalf("a write ended with %v before %s were read", err, last)
		case <-time.After(20 * time.Millisecond):
		}
		if e.Ready() == nil {
			t.Errorf("the engine is ready before %s are read", last)
		}
		close(release)
		if err := <-answered; err != nil {
			t.Errorf("a write ended with %v", err)
		}
		await.Until(t, "the engine is ready", func() bool { return e.Ready() == nil })
	}
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
	first := inStores(t, before, nil, func(string) bool { return false })
	await.Until(t, "the first engine knows six configurations", func() bool { return first.Ready() == nil && len(first.Configurations()) == 6 })

	release := make(chan struct{})
	next := inStores(t, memstore.New(), release, func(string) bool { return true })
	if next.Ready() == nil || len(next.Configurations()) > 0 {
		t.Fatal("an engine that has read nothing is ready")
	}
	for name, s := range first.Configurations() {
		next.Restore(name, s.Items)
	}
	next.Restore("secrets", nil)
	await.Until(t, "the next engine is ready", func() bool { return next.Ready() == nil })
	if !next.validatingWebhooks.informer.Some() || next.mutatingWebhooks.informer.Some() {
		t.Error("restored configurations do not apply")
	}
	if len(next.Configurations()) > 0 {
		t.Error("restored configurations count as read")
	}
	close(release)
	await.Until(t, "the webhook is gone", func() bool { return !next.validatingWebhooks.informer.Some() && len(next.Configurations()) == 6 })
	next.Restore(hooks, first.Configurations()[hooks].Items)
	if next.validatingWebhooks.informer.Some() {
		t.Error("restored configurations replace newer ones")
	}
}

// A namespace that is not known is read from the store.
func TestNamespaceIsRead(t *testing.T) {
	t.Parallel()
	storage := memstore.New()
	e := inStores(t, storage, nil, func(string) bool { return false })
	o, err := e.namespaces.codec.EncodeStored(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"team": "red"}}})
	if err == nil {
		_, err = storage.Store(namespaceInfo()).Create(t.Context(), o.Key(), o, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	if ns, err := e.matcher.GetNamespace(t.Context(), "n"); err != nil || ns.Labels["team"] != "red" {
		t.Errorf("got %+v, %v", ns, err)
	}
	if _, err := e.matcher.GetNamespace(t.Context(), "other"); resource.AsStatus(err).Code != 404 {
		t.Errorf("got %v for a missing namespace", err)
	}
}
