package proxy

import (
	"net/http"
	"time"

	"portico/apiservice/backend"
	"portico/resource"
	"portico/resource/serve/filter"
)

// Signed has answers that the gateway makes itself tell so, to whoever asks and
// may be told (hop.go): discovery, its own groups, and why a request goes nowhere.
// Where a request is sent on, its hop tells in place of this; that the user may be
// told is asked here, once.
func (p *Proxy) Signed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header[headerDebug] != nil {
			if p.mayDebug(r) {
				filter.Attach(r.Context(), p.ownHop(r))
			} else {
				delete(r.Header, headerDebug) // nobody asks again
			}
		}
		next.ServeHTTP(w, r)
	})
}

// ownHop is the hop of a request that goes no further than here.
func (p *Proxy) ownHop(r *http.Request) *hop {
	h := &hop{proxy: p, route: &Route{Backend: backend.Reserved}, request: r, shown: true, began: time.Now()}
	act := resource.ActionFrom(r.Context())
	if !act.IsResource {
		return h
	}
	if rt := p.lookup(act.Group, act.Version); rt != nil {
		h.route.Name = rt.Name
	}
	return h
}
