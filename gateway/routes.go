package gateway

import (
	"net/http"

	"portico/discovery"
	"portico/resource"
	"portico/resource/serve"
	"portico/resource/serve/version"
)

// router returns the fixed routes. What stands behind /api and /apis and is
// about a resource goes through serveResource, the rest of it is discovery.
func (g *Gateway) router() http.Handler {
	return g.proxy.Signed(serve.NewRouter(serve.Routes{
		Resources: http.HandlerFunc(g.serveResource),
		Discovery: discovery.NewExplaining(g.sync.Discovery(), g.sync.WhyUnknown),
		OpenAPI:   g.documents,
		Health:    g.health,
		Metrics:   g.metrics.Handler(),
		Version:   version.Handler(),
		Issuer:    g.issuer,
		Profiling: g.cfg.Profiling,
		Explain:   &explainer{table: g.sync.Table, documents: g.sync.Discovery().Load, listed: g.sync.Listed},
		Index: func() []string {
			paths := []string{"/openapi/v2", "/openapi/v3"}
			if docs := g.sync.Discovery().Load(); docs != nil {
				paths = append(paths, docs.Paths()...)
			}
			return paths
		},
	}))
}

// serveResource answers a request for a resource: the gateway's own from etcd,
// any other through the route of its group/version.
func (g *Gateway) serveResource(w http.ResponseWriter, r *http.Request) {
	act := resource.ActionFrom(r.Context())
	rt := g.sync.Table().Lookup(act.Group, act.Version)
	switch {
	case rt == nil:
		serve.NotFound(w, r)
	case rt.Local:
		g.api.ServeHTTP(w, r)
	default:
		g.proxy.Send(w, r, rt)
	}
}
