package gateway

import (
	"net/http"
	"time"

	"portico/resource"
	"portico/resource/serve"
)

// signed has answers that the gateway makes itself tell so, to whoever asks and
// may be told (hop.go): discovery, its own groups, and why a request goes nowhere.
// Where a request is sent on, its hop tells in place of this.
func (g *Gateway) signed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header[headerDebug] != nil && g.mayDebug(r) {
			serve.Attach(r.Context(), g.ownHop(r))
		}
		next.ServeHTTP(w, r)
	})
}

// ownHop is the hop of a request that goes no further than here.
func (g *Gateway) ownHop(r *http.Request) *hop {
	h := &hop{gateway: g, route: &route{backend: ownBackend}, request: r, shown: true, began: time.Now()}
	act := resource.ActionFrom(r.Context())
	if !act.IsResource {
		return h
	}
	if rt := g.sync.table.Load().lookup(act.Group, act.Version); rt != nil {
		h.route.name = rt.name
	}
	return h
}
