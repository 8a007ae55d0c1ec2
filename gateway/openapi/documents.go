package openapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portico/apiservice/availability"
	"portico/discovery/openapi"
	"portico/gateway/proxy"
	"portico/gateway/routing"
	"portico/resource"
	"portico/resource/response"
	"portico/resource/rest"
)

// Config of Documents.
type Config struct {
	// Own are the gateway's own kinds.
	Own []*rest.Kind
	// Index returns the current index of documents and their servers; nil: none yet.
	Index func() *routing.OpenAPI
	// Issuer: the gateway serves the documents of the service-account issuer.
	Issuer bool
	// Table returns the current routes.
	Table func() *proxy.Table
	// Verdict returns the availability of a server.
	Verdict func(*routing.Server) availability.Verdict
	// BrokenChanged is called when the broken documents change.
	BrokenChanged func()
	// Registry registers the metrics; nil: none.
	Registry prometheus.Registerer
	// CBOR is whether the gateway serves its own kinds in CBOR.
	CBOR bool
	// Logger, nil: slog.Default().
	Logger *slog.Logger
}

// Documents is the http.Handler of OpenAPI documents of the gateway and of the servers behind it. Safe
// for concurrent use.
type Documents struct {
	cfg Config
	own *openapi.Documents
	// remote caches documents of the servers.
	remote *openapi.Remote
	paths  []string // keys of documents of paths, without those of groups
	v2     *v2
}

// New returns Documents. OpenAPI v2 needs Run.
func New(cfg Config) *Documents {
	d := &Documents{
		cfg: cfg, own: openapi.FromKinds(openapi.Config{CBOR: cfg.CBOR, Logger: cfg.Logger}, cfg.Own),
		remote: openapi.NewRemote(openapi.Config{Budget: remoteBudget, BrokenChanged: cfg.BrokenChanged, Logger: cfg.Logger}),
	}
	d.v2 = newV2(d.v2Sources, cfg.BrokenChanged, cfg.Logger)
	d.paths = []string{openapi.KeyCore, openapi.KeyGroups, openapi.KeyVersion}
	if cfg.Issuer {
		d.paths = append(d.paths, openapi.KeyOpenIDConfiguration, openapi.KeyOpenIDKeys)
	}
	if cfg.Registry != nil {
		cfg.Registry.MustRegister(newBrokenMetric(d))
	}
	return d
}

// IndexChanged drops the documents that the index no longer has.
func (d *Documents) IndexChanged() {
	index := d.cfg.Index()
	if index == nil {
		return
	}
	d.remote.Keep(func(key string) (owner, link string) {
		srv, link := index.Server(key)
		if srv == nil {
			return "", ""
		}
		return srv.OpenAPIOwner(), link
	})
}

// Run makes OpenAPI v2 on request until ctx ends.
func (d *Documents) Run(ctx context.Context) error { return d.v2.run(ctx) }

// ServeHTTP serves /openapi/v3 from memory, documents from their servers, and /openapi/v2.
func (d *Documents) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	index := d.cfg.Index()
	key := strings.Trim(strings.TrimPrefix(r.URL.Path, "/openapi/v3"), "/")
	switch {
	case r.URL.Path == "/openapi/v2":
		d.v2.ServeHTTP(w, r)
	case index == nil || !strings.HasPrefix(r.URL.Path, "/openapi/v3"):
		http.Error(w, "404 page not found", http.StatusNotFound)
	case key == "":
		index.Index(d.own, d.paths...).ServeHTTP(w, r)
	case d.describesPath(index, key):
		d.own.ServePath(w, r, key)
	case index.Owns(key):
		d.own.Handler().ServeHTTP(w, r)
	case d.serveRemote(w, r, index, key):
	default:
		d.proxy(w, r, key)
	}
}

// describesPath reports whether key is that of the document of a path.
func (d *Documents) describesPath(index *routing.OpenAPI, key string) bool {
	group, ok := strings.CutPrefix(key, openapi.GroupKey(""))
	return slices.Contains(d.paths, key) || ok && index.HasGroup(group)
}

// proxy sends a request for a document to its server.
func (d *Documents) proxy(w http.ResponseWriter, r *http.Request, key string) {
	var group, version string
	switch parts := strings.Split(key, "/"); {
	case len(parts) == 3 && parts[0] == "apis":
		group, version = parts[1], parts[2]
	case len(parts) == 2 && parts[0] == "api":
		version = parts[1]
	}
	rt := d.cfg.Table().Lookup(group, version)
	if rt == nil || rt.Local || rt.REST != nil {
		http.Error(w, "404 page not found", http.StatusNotFound)
		return
	}
	if err := rt.Unavailable(); err != nil {
		response.WriteStatus(w, r, resource.Unavailable(
			fmt.Sprintf("the server of the OpenAPI document %s is unavailable: %s", key, err.ErrStatus.Message), 0))
		return
	}
	// The server decides about caching.
	w.Header().Del("Cache-Control")
	rt.Upstream.Pass(w, r)
}

// remoteBudget bounds the cached documents of servers, in bytes.
const remoteBudget = 32 << 20

// fetchTimeout bounds fetching a document.
const fetchTimeout = 5 * time.Second

var errUnavailable = errors.New("its server is unavailable")

// serveRemote serves a document of the index from memory, after fetching or converting it. It returns
// false if the request must go to the server.
func (d *Documents) serveRemote(w http.ResponseWriter, r *http.Request, index *routing.OpenAPI, key string) bool {
	srv, link := index.Server(key)
	if srv == nil {
		return false
	}
	ctx := context.WithoutCancel(r.Context()) // other requests may wait for it
	fetch := func() ([]byte, error) { return d.fetch(ctx, srv, link) }
	if srv.Source.ConvertsOpenAPI() {
		d.remote.ServeConverted(w, r, srv.OpenAPIOwner(), key, link, fetch)
		return true
	}
	return d.remote.Serve(w, r, srv.OpenAPIOwner(), key, link, fetch)
}

// fetch returns a document of a server, without a request to an unavailable server, which may drop
// packets.
func (d *Documents) fetch(ctx context.Context, srv *routing.Server, link string) ([]byte, error) {
	if v := d.cfg.Verdict(srv); v.Known && !v.Healthy {
		return nil, errUnavailable
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	return srv.Source.Document(ctx, link)
}
