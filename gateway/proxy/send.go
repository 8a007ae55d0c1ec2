package proxy

import (
	"net/http"

	"portico/resource"
	"portico/resource/authz"
	"portico/resource/response"
	"portico/resource/serve/filter"
)

// Config of a Proxy. The zero Config is good for Send alone.
type Config struct {
	// Table returns the routes as they are now. Required by Streams and DebugHeaders.
	Table func() *Table
	// Authorizer decides who may see where requests go. Required by DebugHeaders.
	Authorizer authz.Authorizer
	// Traced: the attempts of a request whose trace is sampled get spans.
	Traced bool
	// Logged: requests add a record to the access log.
	Logged bool
}

// Proxy sends requests along their routes. Safe for concurrent use.
type Proxy struct{ cfg Config }

// New returns a Proxy.
func New(cfg Config) *Proxy { return &Proxy{cfg} }

// lookup returns the route of a group/version as it is now; nil if there is none.
func (p *Proxy) lookup(group, version string) *Route { return p.cfg.Table().Lookup(group, version) }

// Send sends a request along its route. The order is that of its checks.
func (p *Proxy) Send(w http.ResponseWriter, r *http.Request, rt *Route) {
	ctx := r.Context()
	filter.CountAs(ctx, "aggregator")
	if err := rt.Unavailable(); err != nil {
		response.WriteStatus(w, r, err)
		return
	}
	act := resource.ActionFrom(ctx)
	if err := rt.refuse(r, act); err != nil {
		response.WriteStatus(w, r, err)
		return
	}
	h := p.begin(w, r, rt, act)
	if !h.longRunning() {
		defer h.end()
	}
	r = h.request
	if rt.REST != nil {
		r = rt.REST.request(r)
		w = &locationWriter{w, restRequestOf(r)}
		h.client = w
	}
	filter.ReleaseInFlight(ctx) // the server's own limit takes over
	// The server says how its answer may be cached.
	w.Header().Del("Cache-Control")
	switch {
	case h.upgrade:
		rt.Upstream.upgrade.ServeHTTP(w, r)
	case h.longRunning():
		h.sendLong(w, r)
	default:
		rt.Upstream.short.ServeHTTP(w, r)
	}
}
