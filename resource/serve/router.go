package serve

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/pprof"
	"slices"

	"github.com/gin-gonic/gin"

	"portico/resource"
	"portico/resource/authn"
	"portico/resource/serve/metrics"
)

// Routes are what a server that is not the gateway answers. A nil handler is
// not routed.
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
	// Issuer answers the documents of the service-account issuer.
	Issuer http.Handler
	// Index returns the paths that / lists besides those of the fixed routes:
	// groups, versions, OpenAPI documents. nil: none.
	Index func() []string
	// Explain answers /debug/route: where a request would go.
	Explain http.Handler
	// Profiling adds /debug/pprof.
	Profiling bool
}

// NewRouter routes by the escaped path, so that an encoded slash stays part of a
// name, and never redirects: clients would lose their method and body. Routes
// answer every method; what is not routed is a plain 404.
func NewRouter(routes Routes) *gin.Engine {
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.UseEscapedPath = true
	engine.UnescapePathValues = false
	engine.RedirectTrailingSlash = false
	engine.RedirectFixedPath = false
	engine.HandleMethodNotAllowed = false
	engine.NoRoute(gin.WrapF(NotFound))

	var paths []string
	route := func(h http.Handler, patterns ...string) {
		if h == nil {
			return
		}
		for _, pattern := range patterns {
			engine.Any(pattern, wrap(h))
		}
	}
	list := func(h http.Handler, fixed ...string) {
		route(h, fixed...)
		if h != nil {
			paths = append(paths, fixed...)
		}
	}
	if api := apiHandler(routes.Resources, routes.Discovery); api != nil {
		route(api, "/api", "/api/*path", "/apis", "/apis/*path")
	}
	route(routes.OpenAPI, "/openapi/*path")
	list(routes.Metrics, "/metrics")
	list(routes.Version, "/version")
	route(routes.Version, "/version/")
	list(routes.Issuer, authn.PathOpenIDConfiguration, authn.PathKeySet)
	if routes.Health != nil {
		for _, endpoint := range []string{"/healthz", "/livez", "/readyz"} {
			route(routes.Health, endpoint, endpoint+"/*check")
		}
		list(routes.Health.SLIs(), metrics.PathSLIs)
	}
	list(routes.Explain, "/debug/route")
	if routes.Profiling {
		route(Profiling(), "/debug/pprof", "/debug/pprof/*name")
		paths = append(paths, "/debug/pprof")
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

// wrap makes a gin handler of a handler.
func wrap(h http.Handler) gin.HandlerFunc {
	return func(c *gin.Context) { h.ServeHTTP(&routedWriter{c.Writer}, c.Request) }
}

// routedWriter passes informational responses, which gin's writer would keep
// back and lose: a proxy hands on those of its backend.
type routedWriter struct{ gin.ResponseWriter }

func (w *routedWriter) WriteHeader(code int) {
	below, ok := w.ResponseWriter.(interface{ Unwrap() http.ResponseWriter })
	if ok && code >= 100 && code < 200 && code != http.StatusSwitchingProtocols && !w.Written() {
		below.Unwrap().WriteHeader(code)
		return
	}
	w.ResponseWriter.WriteHeader(code)
}

// Unwrap lets http.ResponseController reach the server's own writer.
func (w *routedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// apiHandler tells resources from discovery.
func apiHandler(resources, discovery http.Handler) http.Handler {
	if resources == nil && discovery == nil {
		return nil
	}
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
			NotFound(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// NotFound answers for a path that nobody serves: in plain text, which clients
// read as a generic NotFound (contract 0.3).
func NotFound(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusNotFound)
	_, _ = io.WriteString(w, "404 page not found\n")
}

// Index serves the list of paths, sorted and without duplicates. paths is called
// for every request; its slice is not kept.
func Index(paths func() []string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		list := paths()
		slices.Sort(list)
		list = slices.Compact(list)
		if list == nil {
			list = []string{}
		}
		body, err := json.MarshalIndent(map[string][]string{"paths": list}, "", "  ")
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body) // a client that has gone cannot be told
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
	mux.HandleFunc("/debug/pprof/cmdline", NotFound) // flags may hold secrets
	return mux
}
