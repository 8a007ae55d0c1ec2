package metastream

import (
	"context"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/internal/testing/await"
	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/client"
	"portico/resource/rest"
	"portico/resource/rest/resttest"
	"portico/resource/watchcache"
)

// A reader receives the metadata of the objects of all resources, and their changes.
func TestStream(t *testing.T) {
	t.Parallel()
	kept := memstore.New()
	cache := watchcache.New(watchcache.Config{Feed: kept.Feed(), Store: kept.Store})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = cache.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })

	maps, secrets := resttest.ConfigMaps(), resttest.Secrets()
	owner := resttest.Stored(t, maps, resttest.ConfigMap("owner"), 0)
	add := func(k *rest.Kind, o *resource.Object) {
		t.Helper()
		if _, err := kept.Store(&k.Info).Create(t.Context(), o.Key(), o, 0); err != nil {
			t.Fatal(err)
		}
	}
	add(maps, owner)
	secret := resttest.Secret("owned")
	secret.UID = "u-2"
	secret.Finalizers = []string{metav1.FinalizerDeleteDependents}
	secret.DeletionTimestamp = &metav1.Time{Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	secret.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "u-1", Controller: new(true), BlockOwnerDeletion: new(true)}}
	add(secrets, resttest.Stored(t, secrets, secret, 0))

	web := httptest.NewServer(Handler(cache))
	defer web.Close()
	events := make(chan watchcache.HeaderEvent, 10)
	reading, stop := context.WithCancel(t.Context())
	defer stop() // before web.Close, which waits for the stream
	ended := make(chan error, 1)
	go func() {
		ended <- Read(reading, client.New(client.Config{BaseURL: web.URL}), Path, func(e watchcache.HeaderEvent) { events <- e })
	}()
	next := func(want resource.EventType) *resource.Header {
		t.Helper()
		select {
		case e := <-events:
			if e.Type != want {
				t.Errorf("got event %v, want %v", e.Type, want)
			}
			return e.Header
		case <-time.After(await.Patience()):
			t.Fatal("there is no event")
		}
		return nil
	}
	if h := next(resource.Added); h.Name != "owner" || h.Kind != "ConfigMap" || h.UID != "u-1" || h.Revision == 0 {
		t.Errorf("got %+v", h)
	}
	h := next(resource.Added)
	want := []resource.Owner{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "u-1", Controller: true, BlockDeletion: true}}
	if !reflect.DeepEqual(h.Owners, want) || !h.Terminating() || len(h.Finalizers) != 1 {
		t.Errorf("got %+v", h)
	}
	next(resource.Synced)
	if _, err := kept.Store(&maps.Info).Delete(t.Context(), owner.Key(), nil); err != nil {
		t.Fatal(err)
	}
	if h := next(resource.Deleted); h.UID != "u-1" {
		t.Errorf("got %+v", h)
	}
	stop()
	if err := <-ended; err != context.Canceled {
		t.Errorf("Read returns %v", err)
	}
}
