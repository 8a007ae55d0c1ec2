package proxy

import (
	"net/http"

	"portico/gateway/upstream"
)

// Upstream is one server behind the gateway and the reverse proxies to it. It exists
// while a route leads to it; its endpoints may change meanwhile.
type Upstream struct {
	*upstream.Upstream
	// short answers requests with a deadline, long those without, and upgrade those
	// that leave HTTP.
	short, long, upgrade http.Handler
}

// NewUpstream returns the reverse proxies to a server.
func NewUpstream(cfg upstream.Config, m *Maker) *Upstream {
	u := &Upstream{Upstream: upstream.New(cfg)}
	u.short, u.long, u.upgrade = m.build(u.Upstream)
	return u
}

// Pass sends a request with a deadline to the server. It is not counted or logged.
func (u *Upstream) Pass(w http.ResponseWriter, r *http.Request) { u.short.ServeHTTP(w, r) }
