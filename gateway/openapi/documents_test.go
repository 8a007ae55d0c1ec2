package openapi

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/discovery"
	"portico/discovery/openapi"
	"portico/gateway/routing"
	"portico/resource"
	"portico/resource/loop"
	"portico/resource/rest"
)

// schemaless is the codec of kinds that are no Go types.
type schemaless struct{ rest.Codec }

func (schemaless) StrategicMerge(schema.GroupVersionKind) runtime.Object { return nil }

// describing is a server behind the gateway that serves discovery and OpenAPI of
// custom resources, on a socket, and counts what it is asked.
type describing struct {
	http.Server
	name, socket string
	openapi      *openapi.Documents
	documents    discovery.Current
	listed       map[string][]discovery.GroupVersion // by group, made once
	asked        atomic.Int32
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
	// As core and CRD server, so that each request is one that the gateway sends.
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
		_ = s.Run(over) // lets go of the servers
	})
	docs := Config{Own: []*rest.Kind{registration}, Index: s.OpenAPI, Table: s.Table, Verdict: s.Verdict, Logger: log}
	return &indexing{Documents: New(docs), sync: s}
}

// servers are those of all Backends.
func (g *indexing) backends() (out []*routing.Server) {
	for _, st := range g.sync.BackendStates().List {
		out = append(out, st.Server)
	}
	return out
}

// check is one availability check of every backend and what follows from it.
func (g *indexing) check(t *testing.T) {
	t.Helper()
	g.services = []*apireg.APIService{}
	g.sync.SetAPIServices(g.services)
	g.sync.SetBackends(g.stored)
	g.sync.Reconcile()
	for _, b := range g.backends() {
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
	act.User = alice()
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
)

func TestOpenAPIOfBackends(t *testing.T) {
	crd, other := startDescribing(t, "crd", "a.example.com"), startDescribing(t, "other", "b.example.com")
	g := startIndexing(t, crd, other)
	if w := g.get("/openapi/v3"); w.Code != 404 {
		t.Errorf("before anything is known: %d", w.Code)
	}
	g.check(t)
	urls := g.urls(t)
	if len(urls) != 3+3+3 || // group/versions, their groups, and paths
		urls[keyA] != crd.openapi.URL(keyA) || urls[keyB] != other.openapi.URL(keyB) || urls[keyOwn] != g.own.URL(keyOwn) {
		t.Fatalf("index %v", urls)
	}
	for key, url := range urls {
		w := g.get(url)
		if w.Code != 200 || w.Header().Get("Cache-Control") != "public, immutable" || w.Header().Get("ETag") == "" {
			t.Errorf("%s: %d %v", key, w.Code, w.Header())
		}
	}
	for path, want := range map[string]int{"/openapi/v3/apis/c.example.com/v1": 404, "/openapi/v3/nonsense": 404, "/openapi": 404} {
		if w := g.get(path); w.Code != want {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}

// A change of a schema without a change of discovery is in the index after the next check.
func TestOpenAPIFollowsSchema(t *testing.T) {
	crd := startDescribing(t, "crd", "a.example.com")
	g := startIndexing(t, crd)
	g.check(t)
	old := g.urls(t)[keyA]
	crd.serves(t, "2", "a.example.com")
	g.check(t)
	url := g.urls(t)[keyA]
	if url == old || url != crd.openapi.URL(keyA) {
		t.Errorf("index has %s, before %s", url, old)
	}
	if w := g.get(old); w.Code != http.StatusMovedPermanently || w.Header().Get("Location") != url {
		t.Errorf("the URL of before: %d %v", w.Code, w.Header())
	}
	if w := g.get(url); !strings.Contains(w.Body.String(), "schema 2") {
		t.Errorf("document: %d %s", w.Code, w.Body)
	}
	// Kinds that come and go, too.
	crd.serves(t, "2", "a.example.com", "b.example.com")
	g.check(t)
	if urls := g.urls(t); urls[keyB] != crd.openapi.URL(keyB) || urls[keyA] != url {
		t.Errorf("after another group came: %v", urls)
	}
	crd.serves(t, "2", "b.example.com")
	g.check(t)
	if urls := g.urls(t); urls[keyA] != "" || urls[keyB] == "" {
		t.Errorf("after a group went: %v", urls)
	}
}

// A change of a schema is in the index at once, by the stream.
func TestOpenAPISchemaShowsAtOnce(t *testing.T) {
	crd := startDescribing(t, "crd", "a.example.com")
	g := startIndexing(t, crd)
	g.check(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = loop.Together(ctx, g.sync.Run)
	}()
	defer func() { cancel(); <-ended }()
	for _, text := range []string{"2", "3"} {
		crd.serves(t, text, "a.example.com")
		within(t, promptly, "schema "+text, func() bool { return g.urls(t)[keyA] == crd.openapi.URL(keyA) })
	}
}

// The index is served from memory, also while a backend is unavailable or answers nonsense.
func TestOpenAPIIndexNeedsNoBackend(t *testing.T) {
	crd, other := startDescribing(t, "crd", "a.example.com"), startDescribing(t, "other", "b.example.com")
	g := startIndexing(t, crd, other)
	g.check(t)
	urls := g.urls(t)
	before := crd.asked.Load() + other.asked.Load()
	w := g.get("/openapi/v3")
	if w := g.get("/openapi/v3", "If-None-Match", w.Header().Get("ETag")); w.Code != http.StatusNotModified {
		t.Errorf("the same index again: %d", w.Code)
	}
	if crd.asked.Load()+other.asked.Load() != before {
		t.Error("the index asked a backend")
	}
	if err := crd.Close(); err != nil {
		t.Fatal(err)
	}
	if now := g.urls(t); now[keyA] != urls[keyA] || now[keyB] != urls[keyB] {
		t.Errorf("after one backend went: %v", now)
	}
	if w := g.get(urls[keyB]); w.Code != 200 {
		t.Errorf("the other's document: %d", w.Code)
	}
	if w := g.get(urls[keyA]); w.Code < 500 || w.Header().Get("Cache-Control") == "public, immutable" {
		t.Errorf("its own document: %d %v", w.Code, w.Header())
	}
}

// A document is fetched once and cached by its hash: it is served in every form while its server is
// unavailable.
func TestOpenAPIDocumentsAreKept(t *testing.T) {
	crd := startDescribing(t, "crd", "a.example.com", "b.example.com")
	g := startIndexing(t, crd)
	g.check(t)
	url := g.urls(t)[keyA]
	before := crd.asked.Load()
	for range 3 {
		if w := g.get(url); w.Code != 200 || w.Header().Get("Cache-Control") != "public, immutable" || !strings.Contains(w.Body.String(), "schema 1") {
			t.Fatalf("%d %v", w.Code, w.Header())
		}
	}
	if asked := crd.asked.Load() - before; asked != 1 {
		t.Errorf("the server was asked %d times", asked)
	}
	wrong := strings.Replace(url, "hash=", "hash=0", 1)
	if w := g.get(wrong); w.Code != http.StatusMovedPermanently || w.Header().Get("Location") != url {
		t.Errorf("a wrong hash: %d %v", w.Code, w.Header())
	}
	if err := crd.Close(); err != nil {
		t.Fatal(err)
	}
	w := g.get(url)
	etag := w.Header().Get("ETag")
	if w.Code != 200 || etag == "" || w.Header().Get("Vary") != "Accept" {
		t.Errorf("while the server is away: %d %v", w.Code, w.Header())
	}
	if w := g.get(url, "If-None-Match", etag); w.Code != http.StatusNotModified {
		t.Errorf("the same again: %d", w.Code)
	}
	path, _, _ := strings.Cut(url, "?")
	if w := g.get(path); w.Code != 200 || w.Header().Get("Cache-Control") != "no-cache, private" || w.Header().Get("ETag") != etag {
		t.Errorf("without a hash: %d %v", w.Code, w.Header())
	}
	const protobuf = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
	if w := g.get(url, "Accept", protobuf); w.Code != 200 || w.Header().Get("Content-Type") != protobuf {
		t.Errorf("protobuf: %d %v", w.Code, w.Header())
	}
	for _, lost := range []string{wrong, g.urls(t)[keyB]} {
		if w := g.get(lost); w.Code < 500 {
			t.Errorf("what only the server has, %s: %d", lost, w.Code)
		}
	}
}
