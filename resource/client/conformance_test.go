package client_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"portico/internal/testing/memstore"
	"portico/internal/testing/storetest"
	"portico/resource"
	"portico/resource/client"
	"portico/resource/rest"
	"portico/resource/rest/handlers"
	"portico/resource/watchcache"
)

// serve starts a server of one store's resource and returns its store over
// HTTP.
func serve(t *testing.T, store resource.Store) resource.Store {
	api := handlers.New(handlers.Config{Resources: []*rest.Resource{{
		Kind: &rest.Kind{
			Info: *store.Info(), Codec: storetest.Codec{}, ReturnDeleted: true,
			Strategy: rest.Strategy{ValidateName: func(string, bool) []string { return nil }},
		},
		Store: store,
	}}})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		act := resource.ParseAction(r)
		act.User = &resource.User{Name: "tester"}
		api.ServeHTTP(w, r.WithContext(resource.WithAction(r.Context(), act)))
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return client.New(client.Config{BaseURL: server.URL, Transport: server.Client().Transport}).Store(store.Info())
}

// cached puts a watch cache over a memory storage.
func cached(t *testing.T, m *memstore.Storage) *watchcache.Cache {
	c := watchcache.New(watchcache.Config{Feed: m.Feed(), Store: m.Store, FreshTimeout: time.Second})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.Run(ctx) // it returns ctx's error
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	if err := c.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T, info *resource.Info) resource.Store { return serve(t, memstore.New().Store(info)) })
}

func TestConformanceOverACache(t *testing.T) {
	storetest.Run(t, func(t *testing.T, info *resource.Info) resource.Store {
		return serve(t, cached(t, memstore.New()).Store(info))
	})
}

func TestHistory(t *testing.T) {
	storetest.RunHistory(t, func(t *testing.T, info *resource.Info) (resource.Store, func(*testing.T, int64)) {
		m := memstore.New()
		return serve(t, m.Store(info)), func(_ *testing.T, rev int64) { m.Compact(rev) }
	})
}

func TestHistoryOverACache(t *testing.T) {
	storetest.RunLongHistory(t, func(t *testing.T, info *resource.Info) (resource.Store, func(*testing.T, int64)) {
		m := memstore.New()
		return serve(t, cached(t, m).Store(info)), func(_ *testing.T, rev int64) { m.Compact(rev) }
	})
}
