package proxy

import (
	"net/http"

	"portico/resource"
	"portico/resource/authz"
	"portico/resource/rest"
	"portico/resource/serve/filter"
)

// Config of a Proxy. The zero Config is good for Send, which then tells nobody.
type Config struct {
	// Table returns the routes as they are now. Required by Streams and Signed.
	Table func() *Table
	// Authorizer says who may be told where requests go. Required if anybody asks
	// (headerDebug).
	Authorizer authz.Authorizer
	// Traced: what is sent of a request whose trace is sampled gets spans.
	Traced bool
	// Logged: the access log is told what came of a request.
	Logged bool
}

// Proxy sends requests along their routes. Safe for concurrent use.
type Proxy struct{ cfg Config }

// New makes a Proxy.
func New(cfg Config) *Proxy { return &Proxy{cfg} }

// lookup returns the route of a group/version as it is now; nil if nobody serves
// it.
func (p *Proxy) lookup(group, version string) *Route { return p.cfg.Table().Lookup(group, version) }

// Send sends a request where its group/version is routed.
func (p *Proxy) Send(w http.ResponseWriter, r *http.Request, rt *Route) {
	filter.CountAs(r.Context(), "aggregator")
	if err := rt.Unavailable(); err != nil {
		rest.WriteStatus(w, r, err)
		return
	}
	if err := rt.Refuse(r); err != nil {
		rest.WriteStatus(w, r, err)
		return
	}
	h, r := p.begin(w, r, rt)
	long := !upgrades(r.Header) && resource.ActionFrom(r.Context()).LongRunning()
	if !long {
		defer h.end()
	}
	if rt.Plain != nil {
		r = rt.Plain.request(r)
		w = &locating{w, askedOf(r)}
		h.client = w
	}
	up := rt.Upstream
	filter.ReleaseInFlight(r.Context()) // its own limit takes over
	// The server says how its answer may be cached.
	w.Header().Del("Cache-Control")
	switch {
	case long:
		h.sendLong(w, r)
	case upgrades(r.Header):
		up.upgrade.ServeHTTP(w, r)
	default:
		up.short.ServeHTTP(w, r)
	}
}
