package filter

import (
	"math/rand/v2"
	"net/http"
)

// cacheControl keeps responses out of shared caches unless the handler sets Cache-Control.
func (c *Chain) cacheControl(_ http.ResponseWriter, r *http.Request) bool {
	stateOf(r.Context()).cacheControl = true
	return true
}

// goaway ends HTTP/2 connections by chance, after the requests in flight on them. Clients
// keep connections for as long as they can, so a server that was restarted behind a load
// balancer would get none for hours.
func (c *Chain) goaway(_ http.ResponseWriter, r *http.Request) bool {
	if chance := c.cfg.GoawayChance; chance > 0 && r.ProtoMajor == 2 && rand.Float64() < chance {
		stateOf(r.Context()).closing.Store(true)
	}
	return true
}
