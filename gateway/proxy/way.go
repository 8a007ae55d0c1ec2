package proxy

import (
	"net/http"

	"portico/gateway/upstream"
)

// Way is one server behind the gateway and the reverse proxies to it. It
// lives as long as something routes to it; its addresses may change meanwhile.
type Way struct {
	*upstream.Upstream
	// short answers requests with a deadline, long those without, upgrade
	// those that leave HTTP.
	short, long, upgrade http.Handler
}

// NewWay makes the reverse proxies to a server.
func NewWay(cfg upstream.Config, p *Maker) *Way {
	up := &Way{Upstream: upstream.New(cfg)}
	up.short, up.long, up.upgrade = p.build(up.Upstream)
	return up
}

// Pass sends a short request to the server, and nobody is told of it.
func (p *Way) Pass(w http.ResponseWriter, r *http.Request) { p.short.ServeHTTP(w, r) }
