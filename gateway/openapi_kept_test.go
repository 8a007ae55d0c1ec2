package gateway

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/gateway/lastgood"
)

// keeping has a gateway keep what it knows in a state directory.
func (g *indexing) keeping(t *testing.T, stateDir string) {
	t.Helper()
	g.log, g.cfg.StateDir = slog.New(slog.DiscardHandler), stateDir
	g.lastGood = &lastGood{log: g.log, sync: g.sync, core: newCoreClient(g.sync)}
	if err := g.lastGood.keep(nil, ""); err != nil {
		t.Fatal(err)
	}
	if err := g.keepDocuments(g.lastGood); err != nil {
		t.Fatal(err)
	}
}

// kept brings the folder of documents up to date, and returns what else is kept.
func (g *indexing) kept(t *testing.T) map[string][]byte {
	t.Helper()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_ = g.lastGood.openAPI.Run(over) // once, and at the end
	return g.lastGood.Documents(t.Context())
}

// A gateway that starts while a server is away lists the OpenAPI documents that
// the one before it knew, has those that somebody asked for, and says of others
// that it does not have them.
func TestOpenAPIOfAnEarlierGateway(t *testing.T) {
	dir := t.TempDir()
	crd := startDescribing(t, "crd", "a.example.com", "b.example.com")
	first := startIndexing(t, crd)
	first.keeping(t, dir)
	first.check(t)
	urls := first.urls(t)
	if w := first.get(urls[keyA]); w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	docs := first.kept(t)
	if err := crd.Close(); err != nil {
		t.Fatal(err)
	}

	next := startIndexing(t, crd)
	next.keeping(t, dir)
	next.lastGood.Restore(docs)
	away := apiservice.FailedDiscoveryCheck("/apis", http.ErrServerClosed)
	for _, a := range first.services {
		apiservice.Set(a, away, time.Now())
		next.services = append(next.services, a)
	}
	next.sync.setAPIServices(next.services)
	next.sync.setBackends(nil)
	next.sync.reconcile()
	if now := next.urls(t); now[keyA] != urls[keyA] || now[keyB] != urls[keyB] {
		t.Fatalf("the index has %v, want %v", now, urls)
	}
	const protobuf = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
	for _, media := range []string{protobuf, "application/json"} {
		w := next.get(urls[keyA], "Accept", media)
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "schema 1") {
			t.Errorf("a document that was asked for before, %s: %d %s", media, w.Code, w.Body)
		}
	}
	w := next.get(urls[keyB])
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), keyB+" was not kept") {
		t.Errorf("a document that nobody asked for: %d %v %s", w.Code, w.Header(), w.Body)
	}
	if again := next.kept(t); string(again["openapi/backend/crd"]) != string(docs["openapi/backend/crd"]) || len(again["openapi/backend/crd"]) == 0 {
		t.Error("the index is not kept on")
	}
	if n := next.lastGood.Restored(); n == 0 {
		t.Error("nothing counts as restored")
	}
}

func (g *indexing) linkOf(target, url string) lastgood.Link {
	return lastgood.Link{Owner: g.sync.servers[target].openAPIOwner(), URL: url}
}

// What is kept leaves with what it is of: documents with the hash that the index
// has, and all of them with their Backend.
func TestOpenAPIKeptLeaves(t *testing.T) {
	dir := t.TempDir()
	crd := startDescribing(t, "crd", "a.example.com")
	g := startIndexing(t, crd)
	g.keeping(t, dir)
	g.check(t)
	old := g.urls(t)[keyA]
	g.get(old)
	g.kept(t)
	fetched := func(url string) bool {
		_, ok := g.keptOpenAPI(g.linkOf("backend/crd", url))
		return ok
	}
	if !fetched(old) {
		t.Fatal("not kept")
	}
	crd.serves(t, "2", "a.example.com")
	g.check(t)
	url := g.urls(t)[keyA]
	g.get(url)
	g.kept(t)
	if fetched(old) || !fetched(url) {
		t.Errorf("after another hash: the old one %v, the new one %v", fetched(old), fetched(url))
	}
	at := g.linkOf("backend/crd", url)
	g.sync.configured = nil
	g.sync.setAPIServices([]*apireg.APIService{})
	g.sync.reconcile()
	docs := g.kept(t)
	if _, ok := g.keptOpenAPI(at); ok || docs["openapi/backend/crd"] != nil {
		t.Error("what was kept of a Backend that is gone is there")
	}
}
