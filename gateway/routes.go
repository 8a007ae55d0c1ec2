package gateway

import (
	"encoding/json"
	"net/http"
	"net/http/pprof"
	"slices"

	"github.com/gin-gonic/gin"

	"portico/discovery"
	"portico/resource"
	"portico/resource/serve"
)

// router returns the fixed routes. Everything that was parsed into an Action
// goes through serveResource or the discovery handler; gin decides nothing
// else, and neither redirects nor cleans paths: they belong to the servers
// behind.
func (g *Gateway) router() http.Handler {
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.RedirectTrailingSlash, engine.RedirectFixedPath, engine.HandleMethodNotAllowed = false, false, false
	engine.UseRawPath, engine.UnescapePathValues = true, false

	api := gin.WrapH(http.HandlerFunc(g.serveAPI))
	for _, path := range []string{"/api", "/api/*path", "/apis", "/apis/*path"} {
		engine.Any(path, api)
		// gin's Any leaves out methods that clients may still proxy.
		engine.Handle("REPORT", path, api)
	}
	get := func(path string, h http.Handler) { engine.GET(path, gin.WrapH(h)) }
	get("/openapi/*path", http.HandlerFunc(g.serveOpenAPI))
	get("/version", serve.VersionHandler())
	get("/version/", serve.VersionHandler())
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		get(path, g.health.Handler())
		get(path+"/*check", g.health.Handler())
	}
	get("/metrics", g.metrics.Handler())
	get("/.well-known/openid-configuration", g.issuer)
	get("/openid/v1/jwks", g.issuer)
	get("/", http.HandlerFunc(g.serveIndex))
	get("/index.html", http.HandlerFunc(g.serveIndex))
	if g.cfg.Profiling {
		profiling(engine)
	}
	engine.NoRoute(gin.WrapF(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "404 page not found", http.StatusNotFound)
	}))
	return engine
}

func profiling(engine *gin.Engine) {
	engine.GET("/debug/pprof", func(c *gin.Context) { c.Redirect(http.StatusFound, "/debug/pprof/") })
	engine.Any("/debug/pprof/*name", func(c *gin.Context) {
		switch c.Param("name") {
		case "/profile":
			pprof.Profile(c.Writer, c.Request)
		case "/symbol":
			pprof.Symbol(c.Writer, c.Request)
		case "/trace":
			pprof.Trace(c.Writer, c.Request)
		default:
			pprof.Index(c.Writer, c.Request)
		}
	})
}

// serveAPI answers everything under /api and /apis: discovery from memory, the
// gateway's own groups from etcd, the rest from the servers behind.
func (g *Gateway) serveAPI(w http.ResponseWriter, r *http.Request) {
	act := resource.ActionFrom(r.Context())
	if !act.IsResource {
		g.discovery.ServeHTTP(w, r)
		return
	}
	rt := g.sync.table.Load().lookup(act.Group, act.Version)
	switch {
	case rt == nil:
		http.Error(w, "404 page not found", http.StatusNotFound)
	case rt.local:
		g.api.ServeHTTP(w, r)
	default:
		g.proxy(w, r, rt)
	}
}

// serveIndex lists every path there is.
func (g *Gateway) serveIndex(w http.ResponseWriter, _ *http.Request) {
	paths := []string{
		"/.well-known/openid-configuration", "/openid/v1/jwks", "/healthz", "/livez", "/metrics",
		"/openapi/v2", "/openapi/v3", "/readyz", "/version",
	}
	if docs := g.sync.documents.Load(); docs != nil {
		paths = append(paths, docs.Paths()...)
	}
	paths = append(paths, g.health.Paths()...)
	slices.Sort(paths)
	body, err := json.MarshalIndent(map[string][]string{"paths": slices.Compact(paths)}, "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// A client that went away is no error of ours.
	_, _ = w.Write(body)
}

func newDiscovery(s *syncer) http.Handler {
	return discovery.NewHandler(func() *discovery.Snapshot { return s.documents.Load() })
}
