package client_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"portico/internal/testing/httpstore"
	"portico/internal/testing/memstore"
	"portico/internal/testing/storetest"
	"portico/resource"
	"portico/resource/client"
	"portico/resource/rest"
	"portico/resource/rest/handlers"
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
	return httpstore.New(client.New(client.Config{BaseURL: server.URL, Transport: server.Client().Transport}), store.Info())
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T, info *resource.Info) resource.Store { return serve(t, memstore.New().Store(info)) })
}

func TestHistory(t *testing.T) {
	storetest.RunHistory(t, func(t *testing.T, info *resource.Info) (resource.Store, func(*testing.T, int64)) {
		m := memstore.New()
		return serve(t, m.Store(info)), func(_ *testing.T, rev int64) { m.Compact(rev) }
	})
}
