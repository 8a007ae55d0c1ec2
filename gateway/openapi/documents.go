package openapi

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"

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
	// Index returns who has which document, as of now; nil: nothing is known yet.
	Index func() *routing.OpenAPI
	// Issuer: the gateway serves the documents of a service-account issuer.
	Issuer bool
	// Table returns the routes as they are now.
	Table func() *proxy.Table
	// Verdict is what is known of a server.
	Verdict func(*routing.Server) availability.Verdict
	// BrokenChanged is called when other documents are broken than before.
	BrokenChanged func()
	// Registry gets the metrics; nil: there are none.
	Registry prometheus.Registerer
	// Logger, nil: slog.Default().
	Logger *slog.Logger
}

// Documents answers requests for OpenAPI documents: the gateway's own, and those
// of the servers behind it. Safe for concurrent use; an http.Handler.
type Documents struct {
	cfg Config
	own *openapi.Documents
	// remote keeps documents of the servers behind.
	remote *openapi.Remote
	paths  []string // keys of documents of paths, beside those of groups
	v2     *v2
}

// New makes Documents. Run has to run for OpenAPI v2.
func New(cfg Config) *Documents {
	d := &Documents{
		cfg: cfg, own: openapi.FromKinds(cfg.Own),
		remote: openapi.NewRemote(openapi.Config{Budget: openAPIKeptBytes, BrokenChanged: cfg.BrokenChanged, Logger: cfg.Logger}),
	}
	d.v2 = newV2(d.v2Sources, cfg.BrokenChanged, cfg.Registry, cfg.Logger)
	d.paths = []string{openapi.KeyCore, openapi.KeyGroups, openapi.KeyVersion}
	if cfg.Issuer {
		d.paths = append(d.paths, openapi.KeyOpenIDConfiguration, openapi.KeyOpenIDKeys)
	}
	if cfg.Registry != nil {
		cfg.Registry.MustRegister(newBrokenMetric(d))
	}
	return d
}

// Run makes OpenAPI v2 when it is asked for, until ctx ends.
func (d *Documents) Run(ctx context.Context) error { return d.v2.run(ctx) }

// ServeHTTP answers /openapi/v3 from memory and sends requests for one
// document to whoever has it. /openapi/v2 is made when it is asked for.
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
	case d.serveKept(w, r, index, key):
	default:
		d.ask(w, r, key)
	}
}

// describesPath reports whether the index has key as that of a path's document.
func (d *Documents) describesPath(index *routing.OpenAPI, key string) bool {
	group, ok := strings.CutPrefix(key, openapi.GroupKey(""))
	return slices.Contains(d.paths, key) || ok && index.HasGroup(group)
}

// ask sends a request for the document of a group/version to its server.
func (d *Documents) ask(w http.ResponseWriter, r *http.Request, key string) {
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
			fmt.Sprintf("the server of the OpenAPI document %s cannot be asked for it: %s", key, err.ErrStatus.Message), 0))
		return
	}
	// Whether the answer may be kept is for the server to say.
	w.Header().Del("Cache-Control")
	rt.Upstream.Pass(w, r)
}
