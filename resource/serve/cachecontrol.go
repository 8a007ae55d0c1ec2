package serve

import "net/http"

// cacheControl keeps responses out of shared caches unless the handler says
// otherwise.
func (s *Server) cacheControl(_ http.ResponseWriter, r *http.Request) bool {
	exchangeFrom(r.Context()).cacheControl = true
	return true
}
