package openapi

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/discovery"
	"portico/discovery/openapi"
	"portico/discovery/sources"
	"portico/gateway/lastgood"
	"portico/gateway/routing"
	"portico/internal/testing/await"
	"portico/resource"
	"portico/resource/loop"
	"portico/resource/rest"
)

// schemaless is the codec of kinds that are no Go types.
type schemaless struct{ rest.Codec }

func (schemaless) StrategicMerge(schema.GroupVersionKind) runtime.Object { return nil }

// describing is a server that serves discovery and OpenAPI of custom resources on a socket, and counts
// requests.
type describing struct {
	http.Server
	name, socket string
	openapi      *openapi.Documents
	documents    discovery.Current
	listed       map[string][]discovery.GroupVersion // by group, made once
	asked        atomic.Int32
	made         atomic.Int32 // schemas, for documents
}

func startDescribing(t *testing.T, name string, groups ...string) *describing {
	t.Helper()
	d := &describing{name: name, socket: filepath.Join(t.TempDir(), name), openapi: openapi.New(openapi.Config{}), listed: map[string][]discovery.GroupVersion{}}
	listener, err := net.Listen("unix", d.socket)
	if err != nil {
		t.Fatal(err)
	}
	documents := discovery.NewHandler(&d.documents)
	d.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.asked.Add(1)
		if strings.HasPrefix(r.URL.Path, "/openapi") {
			d.openapi.Handler().ServeHTTP(w, r)
			return
		}
		documents.ServeHTTP(w, r.WithContext(resource.WithAction(r.Context(), resource.ParseAction(r))))
	})
	d.serves(t, "1", groups...)
	// The protocols of the core and the CRD server, so that no request is a probe for HTTP/2.
	d.Protocols = new(http.Protocols)
	d.Protocols.SetHTTP1(true)
	d.Protocols.SetUnencryptedHTTP2(true)
	go d.Serve(listener)
	t.Cleanup(func() { d.Close() })
	return d
}

// serves makes the server serve a kind in each group, with the text in its schema.
func (d *describing) serves(t *testing.T, text string, groups ...string) {
	t.Helper()
	var kinds []*rest.Kind
	for _, g := range groups {
		kinds = append(kinds, &rest.Kind{
			Info:  resource.Info{Group: g, Versions: []string{"v1"}, Resource: "widgets", Kind: "Widget"},
			Codec: schemaless{},
			Schema: func(string) (*spec.Schema, error) {
				d.made.Add(1)
				return new(spec.Schema).Typed("object", "").WithDescription("schema " + text), nil
			},
			SchemaInputs: func(string) string { return text },
		})
	}
	d.openapi.Update(kinds)
	var gvs []discovery.GroupVersion
	for i, g := range groups {
		if d.listed[g] == nil {
			d.listed[g] = discovery.FromKinds(kinds[i : i+1])
		}
		gvs = append(gvs, d.listed[g]...)
	}
	documents, err := discovery.BuildAfter(d.documents.Load(), gvs, "")
	if err != nil {
		t.Fatal(err)
	}
	d.documents.StoreWith(documents, d.openapi.State())
}

// indexing is the part of a gateway that knows the OpenAPI of its backends.
type indexing struct {
	*Documents
	sync     *routing.Controller
	services []*apireg.APIService
	stored   []*backend.Backend
}

func startIndexing(t *testing.T, backends ...*describing) *indexing {
	t.Helper()
	registration, err := apiservice.Kind()
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	cfg := routing.Config{Own: []discovery.GroupVersion{{Group: apiservice.Group, Version: "v1"}}, Logger: log}
	for _, b := range backends {
		cfg.StaticBackends = append(cfg.StaticBackends, onSocket(t, b.name, b.socket))
	}
	s := routing.New(cfg)
	s.Reconcile()
	t.Cleanup(func() {
		over, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.Run(over) // closes the servers
	})
	docs := Config{Own: []*rest.Kind{registration}, Index: s.OpenAPI, Table: s.Table, Verdict: s.Verdict, Logger: log}
	return &indexing{Documents: New(docs), sync: s}
}

// check makes one availability check of every server and registers all that it serves.
func (g *indexing) check(t *testing.T) {
	t.Helper()
	g.services = []*apireg.APIService{}
	g.sync.SetAPIServices(g.services)
	g.sync.SetBackends(g.stored)
	g.sync.Reconcile()
	for _, st := range g.sync.BackendStates().List {
		b := st.Server
		if err := g.sync.Probe(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		_, _ = b.Source.RefreshOpenAPI(t.Context()) // Broken has the error
		gvs, _ := b.Source.GroupVersions()
		for _, gv := range gvs {
			a := custom(gv, b.Name)
			apiservice.Set(a, apiservice.Local(), time.Now())
			g.services = append(g.services, a)
		}
	}
	g.sync.SetAPIServices(g.services)
	g.sync.SetBackends(g.stored)
	g.sync.Reconcile()
}

func (g *indexing) get(path string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	act := resource.ParseAction(r)
	act.User = &resource.User{Name: "alice"}
	w := httptest.NewRecorder()
	w.Header().Set("Cache-Control", "no-cache, private") // as the filters do
	g.ServeHTTP(w, r.WithContext(resource.WithAction(r.Context(), act)))
	return w
}

// urls reads the index.
func (g *indexing) urls(t *testing.T) map[string]string {
	t.Helper()
	var index struct {
		Paths map[string]struct {
			URL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	w := g.get("/openapi/v3")
	if err := json.Unmarshal(w.Body.Bytes(), &index); err != nil || w.Code != 200 {
		t.Fatalf("index: %d %v", w.Code, err)
	}
	out := map[string]string{}
	for key, e := range index.Paths {
		out[key] = e.URL
	}
	return out
}

const (
	keyA   = "apis/a.example.com/v1"
	keyB   = "apis/b.example.com/v1"
	keyOwn = "apis/apiregistration.k8s.io/v1"

	mediaProtobuf = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
	immutable     = "public, immutable"
)

// is fails unless an answer has a status and, as the only cacheable ones, those with a hash.
func is(t *testing.T, what string, w *httptest.ResponseRecorder, code int, cacheControl string) {
	t.Helper()
	if w.Code != code || w.Header().Get("Cache-Control") != cacheControl {
		t.Errorf("%s: %d %v, want %d and Cache-Control %q: %s", what, w.Code, w.Header(), code, cacheControl, w.Body)
	}
}

// The index has the documents of the gateway and of all servers, each of which can be fetched. It
// follows schemas, also without a change of discovery, and groups.
func TestOpenAPIOfServers(t *testing.T) {
	t.Parallel()
	crd, other := startDescribing(t, "crd", "a.example.com"), startDescribing(t, "other", "b.example.com")
	g := startIndexing(t, crd, other)
	if w := g.get("/openapi/v3"); w.Code != 404 {
		t.Errorf("before the first check: %d", w.Code)
	}
	g.check(t)
	urls := g.urls(t)
	if len(urls) != 3+3+3 || // group/versions, their groups, and paths
		urls[keyA] != crd.openapi.URL(keyA) || urls[keyB] != other.openapi.URL(keyB) || urls[keyOwn] != g.own.URL(keyOwn) {
		t.Fatalf("index %v", urls)
	}
	if n := crd.made.Load() + other.made.Load(); n != 0 {
		t.Errorf("the index built %d documents", n)
	}
	for key, url := range urls {
		w := g.get(url)
		if is(t, key, w, 200, immutable); w.Header().Get("ETag") == "" {
			t.Errorf("%s has no ETag", key)
		}
	}
	if n := crd.made.Load() + other.made.Load(); n != 2 {
		t.Errorf("%d documents were built for two", n)
	}
	for _, path := range []string{"/openapi/v3/apis/c.example.com/v1", "/openapi/v3/nonsense", "/openapi"} {
		if w := g.get(path); w.Code != 404 {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	old := urls[keyA]
	crd.serves(t, "2", "a.example.com", "c.example.com")
	g.check(t)
	urls = g.urls(t)
	if urls[keyA] == old || urls[keyA] != crd.openapi.URL(keyA) || urls["apis/c.example.com/v1"] == "" {
		t.Errorf("after a change of the schema, and another group: %v", urls)
	}
	if w := g.get(old); w.Code != http.StatusMovedPermanently || w.Header().Get("Location") != urls[keyA] {
		t.Errorf("the former URL: %d %v", w.Code, w.Header())
	}
	if w := g.get(urls[keyA]); !strings.Contains(w.Body.String(), "schema 2") {
		t.Errorf("document: %d %s", w.Code, w.Body)
	}
	crd.serves(t, "2", "c.example.com")
	g.check(t)
	if urls := g.urls(t); urls[keyA] != "" {
		t.Errorf("after a group was removed: %v", urls)
	}
}

// A change of a schema is in the index at once, by the stream of the server, and is reported by the
// stream of the gateway.
func TestStreamsReportSchemas(t *testing.T) {
	t.Parallel()
	crd := startDescribing(t, "crd", "a.example.com")
	g := startIndexing(t, crd)
	g.check(t)
	documents := discovery.NewHandler(g.sync.Discovery())
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		documents.ServeHTTP(w, r.WithContext(resource.WithAction(r.Context(), resource.ParseAction(r))))
	}))
	defer front.Close()
	var reports atomic.Int32
	follower := sources.NewSource(sources.Config{
		Name: "gateway", BaseURL: front.URL, Transport: http.DefaultTransport, Identify: func(http.Header) {}, OpenAPIChanged: func() { reports.Add(1) },
	})
	ctx, cancel := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	ended.Go(func() { _ = loop.Together(ctx, g.sync.Run) })
	ended.Go(func() { _ = follower.Follow(ctx, func() {}) })
	defer func() { cancel(); ended.Wait() }()
	for _, text := range []string{"2", "3"} {
		before := reports.Load()
		crd.serves(t, text, "a.example.com")
		await.Until(t, "schema "+text, func() bool { return g.urls(t)[keyA] == crd.openapi.URL(keyA) && reports.Load() > before })
	}
}

// The index needs no server. A document is fetched once and cached by its hash: it is served in every
// form while its server is away; that of another server is fetched.
func TestDocumentsAreServedWhileTheServerIsAway(t *testing.T) {
	t.Parallel()
	crd, other := startDescribing(t, "crd", "a.example.com", "c.example.com"), startDescribing(t, "other", "b.example.com")
	g := startIndexing(t, crd, other)
	g.check(t)
	urls := g.urls(t)
	before := crd.asked.Load()
	if w := g.get("/openapi/v3", "If-None-Match", g.get("/openapi/v3").Header().Get("ETag")); w.Code != http.StatusNotModified {
		t.Errorf("the index with its ETag: %d", w.Code)
	}
	for range 3 {
		w := g.get(urls[keyA])
		if is(t, "with a hash", w, 200, immutable); !strings.Contains(w.Body.String(), "schema 1") {
			t.Fatalf("document %s", w.Body)
		}
	}
	if n := crd.asked.Load() - before; n != 1 {
		t.Errorf("%d requests for the index and a document", n)
	}
	wrong := strings.Replace(urls[keyA], "hash=", "hash=0", 1)
	if w := g.get(wrong); w.Code != http.StatusMovedPermanently || w.Header().Get("Location") != urls[keyA] {
		t.Errorf("another hash: %d %v", w.Code, w.Header())
	}
	if err := crd.Close(); err != nil {
		t.Fatal(err)
	}
	if now := g.urls(t); !maps.Equal(now, urls) {
		t.Errorf("the index became %v", now)
	}
	w := g.get(urls[keyA])
	is(t, "with a hash", w, 200, immutable)
	etag := w.Header().Get("ETag")
	if w := g.get(urls[keyA], "If-None-Match", etag); w.Code != http.StatusNotModified || etag == "" {
		t.Errorf("with its ETag %q: %d", etag, w.Code)
	}
	path, _, _ := strings.Cut(urls[keyA], "?")
	is(t, "without a hash", g.get(path), 200, "no-cache, private")
	if w := g.get(urls[keyA], "Accept", mediaProtobuf); w.Code != 200 || w.Header().Get("Content-Type") != mediaProtobuf {
		t.Errorf("protobuf: %d %v", w.Code, w.Header())
	}
	is(t, "of the other server", g.get(urls[keyB]), 200, immutable)
	for _, lost := range []string{wrong, urls["apis/c.example.com/v1"]} {
		if w := g.get(lost); w.Code < 500 || w.Header().Get("Cache-Control") == immutable {
			t.Errorf("%s, which only the server has: %d %v", lost, w.Code, w.Header())
		}
	}
}

// A gateway that starts while a server is unavailable has the stored index, and answers requests for
// its documents with 503. The stored index is deleted with its Backend.
func TestIndexOfAnEarlierGateway(t *testing.T) {
	t.Parallel()
	crd := startDescribing(t, "crd", "a.example.com", "b.example.com")
	keeper := func(g *indexing) *lastgood.Keeper {
		k, err := lastgood.New(lastgood.Config{
			Current: func(context.Context) []lastgood.Document { return g.sync.Saved() }, Gone: g.sync.Gone, Logger: slog.New(slog.DiscardHandler),
			Restore: func(name string, data []byte) error { _, err := g.sync.Restore(name, data); return err },
		})
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	stored := startIndexing(t)
	stored.stored = []*backend.Backend{{ObjectMeta: metav1.ObjectMeta{Name: "crd"}, Spec: backend.Spec{Endpoints: []backend.Endpoint{{URL: "unix://" + crd.socket}}}}}
	stored.check(t)
	kept := keeper(stored)
	if kept.Documents(t.Context())["backend/crd"] == nil {
		t.Fatal("the index of a stored Backend is not kept")
	}
	stored.sync.SetAPIServices([]*apireg.APIService{})
	stored.sync.SetBackends(nil)
	stored.sync.Reconcile()
	if kept.Documents(t.Context())["backend/crd"] != nil {
		t.Error("the index of a deleted Backend is kept")
	}

	first := startIndexing(t, crd)
	first.check(t)
	urls := first.urls(t)
	docs := keeper(first).Documents(t.Context())
	if err := crd.Close(); err != nil {
		t.Fatal(err)
	}
	next := startIndexing(t, crd)
	restored := keeper(next)
	restored.Restore(docs)
	for _, a := range first.services {
		apiservice.Set(a, apiservice.FailedDiscoveryCheck("/apis", http.ErrServerClosed), time.Now())
	}
	next.sync.SetAPIServices(first.services)
	next.sync.SetBackends(nil)
	next.sync.Reconcile()
	if now := next.urls(t); !maps.Equal(now, urls) {
		t.Fatalf("the index is %v, want %v", now, urls)
	}
	w := next.get(urls[keyB])
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "" || !strings.Contains(w.Body.String(), keyB+" is unavailable") {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	if again := restored.Documents(t.Context()); len(again["backend/crd"]) == 0 || string(again["backend/crd"]) != string(docs["backend/crd"]) || restored.Restored() == 0 {
		t.Error("the restored index is not kept")
	}
}
