package serve

import (
	"encoding/json"
	"net/http"
	"net/http/pprof"
	"slices"

	"github.com/gin-gonic/gin"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
	"portico/resource/response"
)

// NewEngine returns a gin engine without routes. It routes by the escaped path, so that
// an encoded slash is part of a name, and never redirects: clients would lose their method
// and body. A path without a route is a 404 in plain text, a method without one a 405 with
// Allow.
func NewEngine() *gin.Engine {
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.UseEscapedPath = true
	engine.UnescapePathValues = false
	engine.RedirectTrailingSlash = false
	engine.RedirectFixedPath = false
	engine.HandleMethodNotAllowed = true
	engine.NoRoute(gin.WrapF(http.NotFound))
	engine.NoMethod(gin.WrapF(methodNotAllowed))
	return engine
}

// methodNotAllowed answers a method that HTTP does not define, such as PROPFIND.
func methodNotAllowed(w http.ResponseWriter, r *http.Request) {
	response.WriteStatus(w, r, apierrors.NewGenericServerResponse(http.StatusMethodNotAllowed, "", schema.GroupResource{}, "", "", 0, false))
}

// Routes are the routes of a server behind the gateway. A nil handler has no route; every
// route answers the methods of net/http.
type Routes struct {
	// Resources answers everything below a group and version.
	Resources http.Handler
	// Discovery answers /api, /apis and what is not a resource below them.
	Discovery http.Handler
	// OpenAPI answers /openapi/*.
	OpenAPI http.Handler
	// Health answers /healthz, /livez and /readyz.
	Health *Health
	// Metrics answers /metrics, Version /version.
	Metrics, Version http.Handler
	// Metadata answers /internal/metadata and everything below it.
	Metadata http.Handler
	// Index returns further paths that / lists: groups, versions, OpenAPI documents.
	// nil: none.
	Index func() []string
	// Profiling adds /debug/pprof.
	Profiling bool
}

// NewRouter returns an engine with the routes.
func NewRouter(routes Routes) *gin.Engine {
	engine := NewEngine()
	var paths []string
	route := func(h http.Handler, patterns ...string) {
		if h == nil {
			return
		}
		for _, pattern := range patterns {
			engine.Any(pattern, gin.WrapH(h))
		}
	}
	list := func(h http.Handler, path string) {
		if h != nil {
			route(h, path)
			paths = append(paths, path)
		}
	}
	if routes.Resources != nil || routes.Discovery != nil {
		route(API(routes.Resources, routes.Discovery), "/api", "/api/*path", "/apis", "/apis/*path")
	}
	route(routes.OpenAPI, "/openapi/*path")
	route(routes.Metadata, "/internal/metadata", "/internal/metadata/*path")
	list(routes.Metrics, "/metrics")
	list(routes.Version, "/version")
	route(routes.Version, "/version/")
	if routes.Health != nil {
		routes.Health.Route(engine)
	}
	if routes.Profiling {
		list(Profiling(), "/debug/pprof")
		route(Profiling(), "/debug/pprof/*name")
	}
	route(Index(func() []string {
		all := slices.Clone(paths)
		if routes.Health != nil {
			all = append(all, routes.Health.Paths()...)
		}
		if routes.Index != nil {
			all = append(all, routes.Index()...)
		}
		return all
	}), "/", "/index.html")
	return engine
}

// API dispatches requests below /api and /apis: those for resources, and all others to
// discovery. A nil handler answers 404.
func API(resources, discovery http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		action := resource.ActionFrom(r.Context())
		if action == nil {
			action = resource.ParseAction(r)
			r = r.WithContext(resource.WithAction(r.Context(), action))
		}
		next := discovery
		if action.IsResource {
			next = resources
		}
		if next == nil {
			http.NotFound(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Index serves the list of paths, sorted and without duplicates. It calls paths for every
// request and does not retain the slice.
func Index(paths func() []string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		list := append([]string{}, paths()...)
		slices.Sort(list)
		body, _ := json.MarshalIndent(map[string][]string{"paths": slices.Compact(list)}, "", "  ") // never fails for strings
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body) // fails only if the client has gone
	})
}

// Profiling serves the Go runtime's profiles below /debug/pprof/.
func Profiling() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/debug/pprof", http.RedirectHandler("/debug/pprof/", http.StatusFound))
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("/debug/pprof/cmdline", http.NotFound) // flags may hold secrets
	return mux
}
