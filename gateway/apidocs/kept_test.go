package apidocs

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
	"portico/gateway/routing"
)

// startOver is startIndexing with a folder of documents, and who keeps all else.
func startOver(t *testing.T, stateDir string, backends ...*describing) *over {
	t.Helper()
	o := &over{}
	o.indexing = startKeeping(t, func(s *routing.Sync) *lastgood.Folder {
		folder, err := lastgood.NewFolder(lastgood.FolderConfig{StateDir: stateDir, Named: s.NamedOpenAPI, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return folder
	}, backends...)
	var err error
	o.keeper, err = lastgood.New(lastgood.Config{
		Now: func(context.Context) []lastgood.Document { return o.sync.Kept() }, Gone: o.sync.Gone, Logger: slog.New(slog.DiscardHandler),
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

// keep brings the folder of documents up to date, and returns what else is kept.
func (o *over) keep(t *testing.T) map[string][]byte {
	t.Helper()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_ = o.cfg.Folder.Run(over) // once, and at the end
	return o.keeper.Documents(t.Context())
}

// A gateway that starts while a server is away lists the OpenAPI documents that
// the one before it knew, has those that somebody asked for, and says of others
// that it does not have them.
func TestOpenAPIOfAnEarlierGateway(t *testing.T) {
	dir := t.TempDir()
	crd := startDescribing(t, "crd", "a.example.com", "b.example.com")
	first := startOver(t, dir, crd)
	first.check(t)
	urls := first.urls(t)
	if w := first.get(urls[keyA]); w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	docs := first.keep(t)
	if err := crd.Close(); err != nil {
		t.Fatal(err)
	}

	next := startOver(t, dir, crd)
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
	const protobuf = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
	for _, media := range []string{protobuf, "application/json"} {
		w := next.get(urls[keyA], "Accept", media)
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "schema 1") {
			t.Errorf("a document that was asked for before, %s: %d %s", media, w.Code, w.Body)
		}
	}
	w := next.get(urls[keyB])
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "" || !strings.Contains(w.Body.String(), keyB+" was not kept") {
		t.Errorf("a document that nobody asked for: %d %v %s", w.Code, w.Header(), w.Body)
	}
	if again := next.keep(t); string(again["openapi/backend/crd"]) != string(docs["openapi/backend/crd"]) || len(again["openapi/backend/crd"]) == 0 {
		t.Error("the index is not kept on")
	}
	if n := next.keeper.Restored(); n == 0 {
		t.Error("nothing counts as restored")
	}
}

func (g *indexing) linkOf(name, url string) lastgood.Link {
	return lastgood.Link{Owner: g.sync.Standings().ByName[name].Server.OpenAPIOwner(), URL: url}
}

// What is kept leaves with what it is of: documents with the hash that the index
// has, and all of them with their Backend.
func TestOpenAPIKeptLeaves(t *testing.T) {
	dir := t.TempDir()
	crd := startDescribing(t, "crd", "a.example.com")
	g := startOver(t, dir)
	g.stored = []*backend.Backend{{ObjectMeta: metav1.ObjectMeta{Name: "crd"}, Spec: backend.Spec{Endpoints: []backend.Endpoint{{URL: "unix://" + crd.socket}}}}}
	g.check(t)
	old := g.urls(t)[keyA]
	g.get(old)
	g.keep(t)
	fetched := func(url string) bool {
		_, ok := g.kept(g.linkOf("crd", url))
		return ok
	}
	if !fetched(old) {
		t.Fatal("not kept")
	}
	crd.serves(t, "2", "a.example.com")
	g.check(t)
	url := g.urls(t)[keyA]
	g.get(url)
	g.keep(t)
	if fetched(old) || !fetched(url) {
		t.Errorf("after another hash: the old one %v, the new one %v", fetched(old), fetched(url))
	}
	at := g.linkOf("crd", url)
	g.sync.SetAPIServices([]*apireg.APIService{})
	g.sync.SetBackends(nil)
	g.sync.Reconcile()
	docs := g.keep(t)
	if _, ok := g.kept(at); ok || docs["openapi/backend/crd"] != nil {
		t.Error("what was kept of a Backend that is gone is there")
	}
}
