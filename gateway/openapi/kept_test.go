package openapi

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/gateway/lastgood"
)

// startOver is startIndexing with what outlives a gateway.
func startOver(t *testing.T, backends ...*describing) *over {
	t.Helper()
	o := &over{indexing: startIndexing(t, backends...)}
	var err error
	o.keeper, err = lastgood.New(lastgood.Config{
		Current: func(context.Context) []lastgood.Document { return o.sync.Saved() }, Gone: o.sync.Gone, Logger: slog.New(slog.DiscardHandler),
		Restore: func(name string, data []byte) error { _, err := o.sync.Restore(name, data); return err },
	})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// over is indexing that outlives a gateway.
type over struct {
	*indexing
	keeper *lastgood.Keeper
}

// A gateway that starts while a server is unavailable lists the stored OpenAPI documents, and answers
// requests for them with 503.
func TestOpenAPIOfAnEarlierGateway(t *testing.T) {
	crd := startDescribing(t, "crd", "a.example.com", "b.example.com")
	first := startOver(t, crd)
	first.check(t)
	urls := first.urls(t)
	if w := first.get(urls[keyA]); w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	docs := first.keeper.Documents(t.Context())
	if err := crd.Close(); err != nil {
		t.Fatal(err)
	}

	next := startOver(t, crd)
	next.keeper.Restore(docs)
	away := apiservice.FailedDiscoveryCheck("/apis", http.ErrServerClosed)
	for _, a := range first.services {
		apiservice.Set(a, away, time.Now())
		next.services = append(next.services, a)
	}
	next.sync.SetAPIServices(next.services)
	next.sync.SetBackends(nil)
	next.sync.Reconcile()
	if now := next.urls(t); now[keyA] != urls[keyA] || now[keyB] != urls[keyB] {
		t.Fatalf("the index has %v, want %v", now, urls)
	}
	w := next.get(urls[keyB])
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "" || !strings.Contains(w.Body.String(), keyB+" is unavailable") {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	if again := next.keeper.Documents(t.Context()); string(again["backend/crd"]) != string(docs["backend/crd"]) || len(again["backend/crd"]) == 0 {
		t.Error("the index is not kept on")
	}
	if n := next.keeper.Restored(); n == 0 {
		t.Error("nothing counts as restored")
	}
}

// The stored index is deleted with its Backend.
func TestOpenAPIKeptLeaves(t *testing.T) {
	crd := startDescribing(t, "crd", "a.example.com")
	g := startOver(t)
	g.stored = []*backend.Backend{{ObjectMeta: metav1.ObjectMeta{Name: "crd"}, Spec: backend.Spec{Endpoints: []backend.Endpoint{{URL: "unix://" + crd.socket}}}}}
	g.check(t)
	if g.keeper.Documents(t.Context())["backend/crd"] == nil {
		t.Fatal("the index is not kept")
	}
	g.sync.SetAPIServices([]*apireg.APIService{})
	g.sync.SetBackends(nil)
	g.sync.Reconcile()
	if g.keeper.Documents(t.Context())["backend/crd"] != nil {
		t.Error("the index of a Backend that is gone is kept")
	}
}
