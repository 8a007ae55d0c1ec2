package gateway

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"portico/discovery"
	"portico/gateway/installation"
	"portico/gateway/routing"
	"portico/resource"
	"portico/resource/authn"
	"portico/resource/metastream"
	"portico/resource/serve"
	"portico/resource/serve/version"
)

// router returns the gateway's gin engine with all of its routes. Every route answers all
// methods; the filters of resource/serve have authenticated and authorized the request.
func (g *Gateway) router() http.Handler {
	engine := serve.NewEngine()

	// Resources of all groups, and discovery.
	api := gin.WrapH(serve.API(http.HandlerFunc(g.serveResource), discovery.NewExplaining(g.sync.Discovery(), g.sync.WhyUnknown)))
	for _, root := range []string{"/api", "/apis"} {
		group := engine.Group(root)
		group.Any("", api)
		group.Any("/*path", api)
	}
	engine.Any("/openapi/*path", gin.WrapH(g.documents))

	engine.Any(metastream.Path, gin.WrapH(metastream.Handler(g.cache)))
	engine.Any(metastream.Path+"/*path", gin.WrapH(http.HandlerFunc(g.serveMetadata)))

	// The process itself.
	g.health.Route(engine)
	engine.Any("/metrics", gin.WrapH(g.metrics.Handler()))
	engine.Any("/version", gin.WrapH(version.Handler()))
	engine.Any("/version/", gin.WrapH(version.Handler()))
	if g.authn.Issuer != nil {
		engine.Any(authn.PathOpenIDConfiguration, gin.WrapH(g.authn.Issuer))
		engine.Any(authn.PathKeySet, gin.WrapH(g.authn.Issuer))
	}

	debug := engine.Group("/debug")
	debug.Any("/route", gin.WrapH(&explainer{table: g.sync.Table, documents: g.sync.Discovery().Load, listed: g.sync.Listed}))
	engine.Any(installation.Path, gin.WrapH(g.installation(time.Now())))
	if g.cfg.Profiling {
		debug.Any("/pprof", gin.WrapH(serve.Profiling()))
		debug.Any("/pprof/*name", gin.WrapH(serve.Profiling()))
	}

	for pattern, page := range g.debugPages() {
		engine.Any(pattern, gin.WrapH(page))
	}

	index := gin.WrapH(serve.Index(g.paths))
	engine.Any("/", index)
	engine.Any("/index.html", index)
	return g.proxy.DebugHeaders(engine)
}

// paths returns what / lists.
func (g *Gateway) paths() []string {
	paths := append(g.health.Paths(), "/metrics", "/version", "/openapi/v2", "/openapi/v3", "/debug/route", installation.Path, "/statusz", "/flagz")
	if g.authn.Issuer != nil {
		paths = append(paths, authn.PathOpenIDConfiguration, authn.PathKeySet)
	}
	if g.cfg.Profiling {
		paths = append(paths, "/debug/pprof")
	}
	if docs := g.sync.Discovery().Load(); docs != nil {
		paths = append(paths, docs.Paths()...)
	}
	return paths
}

// serveResource answers a request for a resource: the gateway's own from etcd, any other
// through the route of its group/version.
func (g *Gateway) serveResource(w http.ResponseWriter, r *http.Request) {
	act := resource.ActionFrom(r.Context())
	rt := g.sync.Table().Lookup(act.Group, act.Version)
	switch {
	case rt == nil:
		http.NotFound(w, r)
	case rt.Local:
		g.api.ServeHTTP(w, r)
	default:
		g.proxy.Send(w, r, rt)
	}
}

// serveMetadata answers a request for the stream of the metadata of the objects of one server:
// that of the group/version after [metastream.Path]. Only servers that the gateway starts with
// have streams: what they say of any object is believed.
func (g *Gateway) serveMetadata(w http.ResponseWriter, r *http.Request) {
	group, version, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, metastream.Path+"/"), "/")
	if !ok {
		group, version = "", group
	}
	switch rt := g.sync.Table().Lookup(group, version); {
	case rt == nil:
		http.NotFound(w, r)
	case rt.Local:
		metastream.Handler(g.cache).ServeHTTP(w, r)
	case slices.ContainsFunc(g.start, func(b *routing.StaticBackend) bool { return b.Name == rt.Backend }):
		g.proxy.Send(w, r, rt)
	default:
		http.NotFound(w, r)
	}
}
